// A batch of row-major products by CUTLASS 3.x on Hopper: tiles come by TMA, and warps that load and warps that
// multiply, by wgmma, are apart. TMA rounds float32 that is multiplied as TF32 on its way into shared memory
// (cutlass/gemm/collective/sm90_mma_tma_gmma_ss_warpspecialized.hpp).

#include "cute/tensor.hpp"
#include "cutlass/cutlass.h"
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/gemm/device/gemm_universal_adapter.h"
#include "cutlass/gemm/kernel/gemm_universal.hpp"
#include "cutlass/numeric_conversion.h"

//@configuration
//@epilogue
//@calls

namespace {

namespace fusion = cutlass::epilogue::fusion;
using RowMajor = cutlass::layout::RowMajor;

// `Chain` as a node of an epilogue's tree, which has one class for numbers and one for arrays of them.
template <class T>
struct Finished {
  struct Arguments {
    float first, second;
  };
};

template <int N>
struct Finished<cutlass::Array<float, N>> {
  using Arguments = typename Finished<float>::Arguments;
  using Numbers = cutlass::Array<float, N>;

  CUTLASS_HOST_DEVICE Numbers operator()(Numbers const& x, Numbers const& bias, Numbers const& source,
                                         Arguments const& of) const {
    collage::Chain<Activation, kSource> chain{of.first, of.second};
    Numbers made;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < N; ++i) made[i] = chain(x[i], bias[i], source[i]);
    return made;
  }

  CUTLASS_HOST_DEVICE Numbers operator()(Numbers const& x, Numbers const& bias, Arguments const& of) const {
    Numbers none;
    none.clear();
    return (*this)(x, bias, none, of);
  }
};

constexpr bool kLoaded = kSource == collage::Source::kBefore || kSource == collage::Source::kAfter;
using Vector = fusion::Sm90RowBroadcast<0, Threadblock, Result, float>;
using Node = fusion::Sm90Compute<Finished, Result, float, cutlass::FloatRoundStyle::round_to_nearest>;
using Beside = cute::conditional_t<kLoaded, fusion::Sm90SrcFetch<Result>, Vector>;
using Tree = cute::conditional_t<kSource == collage::Source::kNone,
                                 fusion::Sm90EVT<Node, fusion::Sm90AccFetch, Vector>,
                                 fusion::Sm90EVT<Node, fusion::Sm90AccFetch, Vector, Beside>>;

using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
    cutlass::arch::Sm90, OperatorClass, Threadblock, Cluster, cutlass::epilogue::collective::EpilogueTileAuto, float,
    float, cute::conditional_t<kLoaded, Result, void>, RowMajor, kResultAccess, Result, RowMajor, kResultAccess,
    EpilogueSchedule, Tree>::CollectiveOp;
using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::Sm90, OperatorClass, Element, LayoutA, kAccess, Element, LayoutB, kAccess, float, Threadblock,
    Cluster, cutlass::gemm::collective::StageCountAutoCarveout<sizeof(typename Epilogue::SharedStorage)>,
    Schedule>::CollectiveOp;
using Gemm = cutlass::gemm::device::GemmUniversalAdapter<
    cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Mainloop, Epilogue>>;

/// Strides of a batch of matrices; of the first two one is static, since rows or columns lie side by side.
template <class Stride>
Stride strides(int64_t ld, int64_t batch) {
  Stride made{};
  if constexpr (cute::is_static_v<cute::remove_cvref_t<decltype(cute::get<1>(made))>>) {
    cute::get<0>(made) = ld;
  } else {
    cute::get<1>(made) = ld;
  }
  cute::get<2>(made) = batch;
  return made;
}

}  // namespace

// As `library.GemmArguments` in Python. Leading dimensions and strides are in elements.
struct CollageGemm {
  int32_t m, n, k, batch, device;
  float first, second;
  void *a, *b, *bias, *source, *result;
  int64_t a_ld, b_ld, source_ld, result_ld;
  int64_t a_stride, b_stride, source_stride, result_stride;
};

namespace {

/// What the epilogue's tree is told; a template, so that of the branches only the right one has to fit it.
template <class Of, collage::Source kOf>
typename Of::Arguments told(CollageGemm const* of) {
  auto* bias = static_cast<Result const*>(of->bias);
  if constexpr (kOf == collage::Source::kNone) {
    return {{}, {bias, Result(0), {}}, {of->first, of->second}};
  } else if constexpr (kOf == collage::Source::kScale) {
    auto* source = static_cast<Result const*>(of->source);
    return {{}, {bias, Result(0), {}}, {source, Result(0), {}}, {of->first, of->second}};
  } else {
    return {{}, {bias, Result(0), {}}, {}, {of->first, of->second}};
  }
}

}  // namespace

/// Enqueues; returns what `collage::answered` says.
COLLAGE_EXPORTED int collage_gemm(CollageGemm const* of, void* stream) {
  cutlass::Status status = collage::on(of->device);
  if (status != cutlass::Status::kSuccess) return collage::answered(status);
  auto* source = static_cast<Result const*>(of->source);
  cutlass::KernelHardwareInfo hardware;
  hardware.device_id = of->device;
  hardware.sm_count = cutlass::KernelHardwareInfo::query_device_multiprocessor_count(of->device);
  typename Gemm::Arguments arguments{
      cutlass::gemm::GemmUniversalMode::kGemm,
      {of->m, of->n, of->k, of->batch},
      {static_cast<Element const*>(of->a), strides<typename Gemm::GemmKernel::StrideA>(of->a_ld, of->a_stride),
       static_cast<Element const*>(of->b), strides<typename Gemm::GemmKernel::StrideB>(of->b_ld, of->b_stride)},
      {told<Tree, kSource>(of), source, strides<typename Gemm::GemmKernel::StrideC>(of->source_ld, of->source_stride),
       static_cast<Result*>(of->result),
       strides<typename Gemm::GemmKernel::StrideD>(of->result_ld, of->result_stride)},
      hardware};
  if constexpr (!kLoaded) arguments.epilogue.ptr_C = nullptr;
  Gemm gemm;
  status = Gemm::can_implement(arguments);
  // nothing here has a workspace: a kernel that wants one is none of those that were chosen
  if (status == cutlass::Status::kSuccess && Gemm::get_workspace_size(arguments))
    status = cutlass::Status::kErrorWorkspaceNull;
  if (status == cutlass::Status::kSuccess) status = gemm(arguments, nullptr, static_cast<cudaStream_t>(stream));
  return collage::answered(status);
}
