"""The only room with onnxruntime, which lives in child processes: a crash there ends no one else.

Parent side (no onnxruntime import): ``device``, ``execute``, ``inputs``, ``outputs``, ``worker``.
Child side: ``child``, ``session``, ``capi``, ``counting``, ``resident``, ``running``, ``timing``.
"""
