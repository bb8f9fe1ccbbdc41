// A convolution over two axes as an implicit product (CUTLASS 2.x), channels last, with what brings images there and
// back.

#include "cutlass/cutlass.h"
#include "cutlass/conv/kernel/default_conv2d_fprop_with_broadcast.h"
// the next one takes for granted what the one before includes
#include "cutlass/conv/device/implicit_gemm_convolution.h"

//@configuration
//@epilogue

namespace {

using Nhwc = cutlass::layout::TensorNHWC;
using Output = collage::Finish<Element, kAccess, Activation, kSource>;
using Swizzle = cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<8>;
using Kernel = typename cutlass::conv::kernel::DefaultConv2dFpropWithBroadcast<
    Element, Nhwc, Element, Nhwc, Element, Nhwc, float, OperatorClass, cutlass::arch::Sm80, Threadblock, Warp,
    Instruction, Output, Swizzle, kStages, cutlass::arch::OpMultiplyAdd, cutlass::conv::IteratorAlgorithm::kOptimized,
    cutlass::conv::StrideSupport::kStrided, kAccess, kAccess>::Kernel;
using Convolution = cutlass::conv::device::ImplicitGemmConvolution<Kernel>;

constexpr int kSide = 32;  // of a square that one block turns; 8 rows of it at a time
constexpr int kRows = 8;

/// result[b][j][i] = given[b][i][j], by squares in shared memory; a column more than a square keeps banks apart.
__global__ void turn(Element const* given, Element* result, int rows, int columns) {
  __shared__ Element square[kSide][kSide + 1];
  int64_t start = int64_t(blockIdx.z) * rows * columns;
  int left = blockIdx.x * kSide, top = blockIdx.y * kSide;
  for (int i = threadIdx.y; i < kSide; i += kRows)
    if (top + i < rows && left + int(threadIdx.x) < columns)
      square[i][threadIdx.x] = given[start + int64_t(top + i) * columns + left + threadIdx.x];
  __syncthreads();
  for (int i = threadIdx.y; i < kSide; i += kRows)
    if (left + i < columns && top + int(threadIdx.x) < rows)
      result[start + int64_t(left + i) * rows + top + threadIdx.x] = square[threadIdx.x][i];
}

}  // namespace

// As `library.ConvArguments` in Python: images [n, h, w, c] and [n, p, q, k], filters [k, r, s, c].
struct CollageConv {
  int32_t n, h, w, c, k, r, s, p, q, pad_h, pad_w, stride_h, stride_w, dilation_h, dilation_w, device;
  float first, second;
  int32_t source_is_vector;
  void *x, *filter, *bias, *source, *result;
};

/// Enqueues; returns a `cutlass::Status`.
extern "C" int collage_conv(CollageConv const* of, void* stream) {
  if (cudaSetDevice(of->device) != cudaSuccess) return static_cast<int>(cutlass::Status::kErrorInternal);
  cutlass::conv::Conv2dProblemSize problem(of->n, of->h, of->w, of->c, of->k, of->r, of->s, of->p, of->q, of->pad_h,
                                           of->pad_w, of->stride_h, of->stride_w, of->dilation_h, of->dilation_w,
                                           cutlass::conv::Mode::kCrossCorrelation);
  Nhwc image = Nhwc::packed({of->n, of->h, of->w, of->c}), result = Nhwc::packed({of->n, of->p, of->q, of->k});
  Nhwc filter = Nhwc::packed({of->k, of->r, of->s, of->c});
  Nhwc source = of->source_is_vector ? Nhwc(typename Nhwc::Stride(0)) : result;
  typename Convolution::Arguments arguments(
      problem, {static_cast<Element*>(of->x), image}, {static_cast<Element*>(of->filter), filter},
      {static_cast<Element*>(of->source), source}, {static_cast<Element*>(of->result), result},
      {{of->first, of->second}}, cutlass::conv::SplitKMode::kSerial, of->bias, nullptr, 0, 0);
  cutlass::Status status = Convolution::can_implement(arguments);
  if (status != cutlass::Status::kSuccess) return static_cast<int>(status);
  Convolution convolution;
  status = convolution.initialize(arguments, nullptr, static_cast<cudaStream_t>(stream));
  if (status == cutlass::Status::kSuccess) status = convolution.run(static_cast<cudaStream_t>(stream));
  return static_cast<int>(status);
}

// As `library.TurnArguments` in Python: [batch, rows, columns] to [batch, columns, rows].
struct CollageTurn {
  int32_t batch, rows, columns, device;
  void *given, *result;
};

/// Enqueues; returns a `cutlass::Status`.
extern "C" int collage_turn(CollageTurn const* of, void* stream) {
  bool launched = cudaSetDevice(of->device) == cudaSuccess;
  if (launched) {
    dim3 grid((of->columns + kSide - 1) / kSide, (of->rows + kSide - 1) / kSide, of->batch);
    turn<<<grid, dim3(kSide, kRows), 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<Element const*>(of->given), static_cast<Element*>(of->result), of->rows, of->columns);
    launched = cudaGetLastError() == cudaSuccess;
  }
  return static_cast<int>(launched ? cutlass::Status::kSuccess : cutlass::Status::kErrorInternal);
}

/// Copies from the host to new memory, by way of a stream that is waited for; null if there is too little.
extern "C" void* collage_place(int device, void const* data, size_t bytes, void* by) {
  auto stream = static_cast<cudaStream_t>(by);
  void* place = nullptr;
  if (cudaSetDevice(device) != cudaSuccess || cudaMalloc(&place, bytes) != cudaSuccess) return nullptr;
  bool copied = cudaMemcpyAsync(place, data, bytes, cudaMemcpyHostToDevice, stream) == cudaSuccess &&
                cudaStreamSynchronize(stream) == cudaSuccess;
  if (copied) return place;
  cudaFree(place);
  return nullptr;
}

extern "C" void collage_free(int device, void* place) {
  if (cudaSetDevice(device) == cudaSuccess) cudaFree(place);
}
