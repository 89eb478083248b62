import pytest

from nmtkit.utils.errors import is_out_of_memory


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", True),
        ("cuDNN error: CUDNN_STATUS_ALLOC_FAILED", True),
        ("CUDA out of memory. Tried to allocate 2.00 GiB", True),
        ("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED", False),
    ],
)
def test_memory_errors_by_message(message: str, expected: bool) -> None:
    assert is_out_of_memory(RuntimeError(message)) == expected
