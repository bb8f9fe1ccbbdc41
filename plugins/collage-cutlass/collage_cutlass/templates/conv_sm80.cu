// A convolution over two axes as an implicit product (CUTLASS 2.x), channels last; `collage_move` brings images there
// and back.

#include "cutlass/cutlass.h"
#include "cutlass/conv/kernel/default_conv2d_fprop_with_broadcast.h"
// the next one takes for granted what the one before includes
#include "cutlass/conv/device/implicit_gemm_convolution.h"
#include "cutlass/numeric_conversion.h"

//@configuration
//@epilogue
//@calls

namespace {

using Nhwc = cutlass::layout::TensorNHWC;
using Output = collage::Finish<Result, kResultAccess, Activation, kSource>;
using Swizzle = cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<8>;
using Kernel = typename cutlass::conv::kernel::DefaultConv2dFpropWithBroadcast<
    Element, Nhwc, Element, Nhwc, Result, Nhwc, float, OperatorClass, cutlass::arch::Sm80, Threadblock, Warp,
    Instruction, Output, Swizzle, kStages, cutlass::arch::OpMultiplyAdd, cutlass::conv::IteratorAlgorithm::kOptimized,
    cutlass::conv::StrideSupport::kStrided, kAccess, kAccess>::Kernel;
using Convolution = cutlass::conv::device::ImplicitGemmConvolution<Kernel>;

}  // namespace

// As `library.ConvArguments` in Python: images [n, h, w, c] and [n, p, q, k], filters [k, r, s, c].
struct CollageConv {
  int32_t n, h, w, c, k, r, s, p, q, pad_h, pad_w, stride_h, stride_w, dilation_h, dilation_w, device;
  float first, second;
  int32_t source_is_vector;
  void *x, *filter, *bias, *source, *result;
};

/// Enqueues; returns what `collage::answered` says.
COLLAGE_EXPORTED int collage_conv(CollageConv const* of, void* stream) {
  cutlass::Status status = collage::on(of->device);
  if (status != cutlass::Status::kSuccess) return collage::answered(status);
  cutlass::conv::Conv2dProblemSize problem(of->n, of->h, of->w, of->c, of->k, of->r, of->s, of->p, of->q, of->pad_h,
                                           of->pad_w, of->stride_h, of->stride_w, of->dilation_h, of->dilation_w,
                                           cutlass::conv::Mode::kCrossCorrelation);
  Nhwc image = Nhwc::packed({of->n, of->h, of->w, of->c}), result = Nhwc::packed({of->n, of->p, of->q, of->k});
  Nhwc filter = Nhwc::packed({of->k, of->r, of->s, of->c});
  Nhwc source = of->source_is_vector ? Nhwc(typename Nhwc::Stride(0)) : result;
  typename Convolution::Arguments arguments(
      problem, {static_cast<Element*>(of->x), image}, {static_cast<Element*>(of->filter), filter},
      {static_cast<Result*>(of->source), source}, {static_cast<Result*>(of->result), result},
      {{of->first, of->second}}, cutlass::conv::SplitKMode::kSerial, of->bias, nullptr, 0, 0);
  Convolution convolution;
  status = Convolution::can_implement(arguments);
  if (status == cutlass::Status::kSuccess)
    status = convolution.initialize(arguments, nullptr, static_cast<cudaStream_t>(stream));
  if (status == cutlass::Status::kSuccess) status = convolution.run(static_cast<cudaStream_t>(stream));
  return collage::answered(status);
}
