"""How TensorFlow and BLAS run; nothing here imports TensorFlow when it is imported.

quiet           TensorFlow's start without its noise
tensor_float    products of float32 matrices as such, on GPUs too
threads         one thread of BLAS for small matrices
tracing         compiled functions that belong to one model
"""
