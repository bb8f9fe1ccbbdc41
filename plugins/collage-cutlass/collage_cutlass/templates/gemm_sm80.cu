// A batch of row-major products by CUTLASS 2.x (tensor cores of sm_80 and later, or exact float32 without them).

#include "cutlass/cutlass.h"
#include "cutlass/gemm/device/gemm_universal_base.h"
#include "cutlass/gemm/kernel/default_gemm_with_broadcast.h"
#include "cutlass/numeric_conversion.h"

//@configuration
//@epilogue
//@calls

namespace {

using Output = collage::Finish<Result, kResultAccess, Activation, kSource>;
using Swizzle = cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<8>;

// The product as CUTLASS puts it together by default, of which the main loop is taken.
using Plain = typename cutlass::gemm::kernel::DefaultGemmUniversal<
    Element, LayoutA, cutlass::ComplexTransform::kNone, kAccess, Element, LayoutB, cutlass::ComplexTransform::kNone,
    kAccess, Result, cutlass::layout::RowMajor, float, OperatorClass, cutlass::arch::Sm80, Threadblock, Warp,
    Instruction, Output, Swizzle, kStages, cutlass::arch::OpMultiplyAdd>::GemmKernel;

template <class Class, class Of>
struct Epilogue {
  using Type = typename cutlass::epilogue::threadblock::DefaultEpilogueWithBroadcastTensorOp<
      typename Of::Shape, typename Of::WarpMmaOperator, Of::kPartitionsK, Result, Result, Result, Output,
      kResultAccess>::Epilogue;
};

template <class Of>
struct Epilogue<cutlass::arch::OpClassSimt, Of> {
  using Type = typename cutlass::epilogue::threadblock::DefaultEpilogueWithBroadcastSimt<
      typename Of::Shape, typename Of::WarpMmaOperator, Result, Result, Result, Output, kResultAccess>::Epilogue;
};

using Finished = typename Epilogue<OperatorClass, typename Plain::Epilogue>::Type;
using Gemm = cutlass::gemm::device::GemmUniversalBase<
    cutlass::gemm::kernel::GemmWithFusedEpilogue<typename Plain::Mma, Finished, Swizzle>>;

}  // namespace

// As `library.GemmArguments` in Python. Leading dimensions and strides are in elements.
struct CollageGemm {
  int32_t m, n, k, batch, device;
  float first, second;
  void *a, *b, *bias, *source, *result;
  int64_t a_ld, b_ld, source_ld, result_ld;
  int64_t a_stride, b_stride, source_stride, result_stride;
};

/// Enqueues; returns what `collage::answered` says.
COLLAGE_EXPORTED int collage_gemm(CollageGemm const* of, void* stream) {
  cutlass::Status status = collage::on(of->device);
  if (status != cutlass::Status::kSuccess) return collage::answered(status);
  auto mode = of->batch > 1 ? cutlass::gemm::GemmUniversalMode::kBatched : cutlass::gemm::GemmUniversalMode::kGemm;
  typename Output::Params finish{{of->first, of->second}};
  typename Gemm::Arguments arguments(mode, {of->m, of->n, of->k}, of->batch, finish, of->a, of->b, of->source,
                                     of->result, of->bias, nullptr, of->a_stride, of->b_stride, of->source_stride,
                                     of->result_stride, 0, 0, of->a_ld, of->b_ld, of->source_ld, of->result_ld, 0, 0);
  status = Gemm::can_implement(arguments);
  if (status == cutlass::Status::kSuccess) status = Gemm()(arguments, nullptr, static_cast<cudaStream_t>(stream));
  return collage::answered(status);
}
