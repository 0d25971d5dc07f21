"""The only room with onnxruntime, which lives in child processes: a crash there ends no one else.

Parent side (no onnxruntime import): ``arrays``, ``device``, ``execute``, ``inputs``, ``worker``.
Child side: ``capi``, ``child``, ``counting``, ``probing``, ``resident``, ``running``, ``session``,
``timing``. Both: ``dtypes``, ``protocol``.
"""
