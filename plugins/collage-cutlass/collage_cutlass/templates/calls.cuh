// What the calls of all kernels share: how they say what went wrong, and copies that turn and round.

namespace collage {

/// What a call returns: a `cutlass::Status`, or what CUDA says is behind it, as a negative number.
inline int answered(cutlass::Status status) {
  if (status == cutlass::Status::kSuccess) return 0;
  cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? static_cast<int>(status) : -static_cast<int>(error);
}

/// Makes a device this thread's.
inline cutlass::Status on(int device) {
  return cudaSetDevice(device) == cudaSuccess ? cutlass::Status::kSuccess : cutlass::Status::kErrorInternal;
}

}  // namespace collage

COLLAGE_EXPORTED char const* collage_error(int error) { return cudaGetErrorString(static_cast<cudaError_t>(error)); }

namespace collage {

constexpr int kSide = 32;  // of a square that one block turns; 8 rows of it at a time
constexpr int kRows = 8;

/// result[b][j][i] = given[b][i][j], by squares in shared memory; a column more than a square keeps banks apart.
template <class From, class To>
__global__ void turn(From const* given, To* result, int rows, int columns) {
  __shared__ To square[kSide][kSide + 1];
  cutlass::NumericConverter<To, From> rounded;  // to the nearest
  int64_t start = int64_t(blockIdx.z) * rows * columns;
  int left = blockIdx.x * kSide, top = blockIdx.y * kSide;
  for (int i = threadIdx.y; i < kSide; i += kRows)
    if (top + i < rows && left + int(threadIdx.x) < columns)
      square[i][threadIdx.x] = rounded(given[start + int64_t(top + i) * columns + left + threadIdx.x]);
  __syncthreads();
  for (int i = threadIdx.y; i < kSide; i += kRows)
    if (left + i < columns && top + int(threadIdx.x) < rows)
      result[start + int64_t(left + i) * rows + top + threadIdx.x] = square[threadIdx.x][i];
}

constexpr int kThreads = 256;
constexpr int64_t kBlocks = 4096;  // enough to fill any device; each thread takes as many elements as it has to

template <class From, class To>
__global__ void copy(From const* given, To* result, int64_t count) {
  cutlass::NumericConverter<To, From> rounded;
  for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < count; i += int64_t(gridDim.x) * kThreads)
    result[i] = rounded(given[i]);
}

}  // namespace collage

// As `library.MoveArguments` in Python: [batch, rows, columns], to [batch, columns, rows] if turned; elements as in the
// model, rounded to those that are multiplied if narrowed.
struct CollageMove {
  int32_t batch, rows, columns, device, turned, narrowed;
  void *given, *result;
};

namespace collage {

template <class To>
void move(CollageMove const* of, cudaStream_t stream) {
  auto given = static_cast<Result const*>(of->given);
  auto result = static_cast<To*>(of->result);
  int64_t count = int64_t(of->batch) * of->rows * of->columns;
  if (of->turned) {
    dim3 grid((of->columns + kSide - 1) / kSide, (of->rows + kSide - 1) / kSide, of->batch);
    turn<Result, To><<<grid, dim3(kSide, kRows), 0, stream>>>(given, result, of->rows, of->columns);
  } else {
    int64_t blocks = (count + kThreads - 1) / kThreads;
    copy<Result, To><<<dim3(blocks < kBlocks ? blocks : kBlocks), kThreads, 0, stream>>>(given, result, count);
  }
}

}  // namespace collage

/// Enqueues; returns what `collage::answered` says.
COLLAGE_EXPORTED int collage_move(CollageMove const* of, void* stream) {
  cutlass::Status status = collage::on(of->device);
  if (status == cutlass::Status::kSuccess) {
    if (of->narrowed) {
      collage::move<Element>(of, static_cast<cudaStream_t>(stream));
    } else {
      collage::move<Result>(of, static_cast<cudaStream_t>(stream));
    }
    if (cudaPeekAtLastError() != cudaSuccess) status = cutlass::Status::kErrorInternal;
  }
  return collage::answered(status);
}
