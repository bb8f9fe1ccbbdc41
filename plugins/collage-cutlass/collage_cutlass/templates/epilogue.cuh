// What follows a product in one kernel: activation(x * scale + bias + residual) + residual, each part if wanted.
//
// `Finish` is an output operator as CUTLASS 2.x calls them from `EpilogueWithBroadcast` (epilogue_with_broadcast.h says
// what one has): x is what was summed up, the vector has a number for each column, the source one for each element or,
// with strides of 0, again for each column. Everything is computed in float32 and rounded once.

// Only these functions are visible. CUTLASS keeps per-kernel state in static members of templates; were they visible,
// all libraries of a process would share one copy of each.
#define COLLAGE_EXPORTED extern "C" __attribute__((visibility("default")))

namespace collage {

struct Identity {
  CUTLASS_HOST_DEVICE float operator()(float x, float, float) const { return x; }
};

struct Relu {
  CUTLASS_HOST_DEVICE float operator()(float x, float, float) const { return x < 0 ? 0.0f : x; }
};

struct Clip {
  CUTLASS_HOST_DEVICE float operator()(float x, float least, float most) const {
    return x < least ? least : x > most ? most : x;  // keeps what is no number, as ONNX does
  }
};

struct LeakyRelu {
  CUTLASS_HOST_DEVICE float operator()(float x, float slope, float) const { return x < 0 ? slope * x : x; }
};

struct Elu {
  CUTLASS_HOST_DEVICE float operator()(float x, float alpha, float) const { return x < 0 ? alpha * expm1f(x) : x; }
};

struct Sigmoid {
  CUTLASS_HOST_DEVICE float operator()(float x, float, float) const { return 1.0f / (1.0f + expf(-x)); }
};

// SiLU where beta is 1.
struct Swish {
  CUTLASS_HOST_DEVICE float operator()(float x, float beta, float) const { return x / (1.0f + expf(-beta * x)); }
};

struct Tanh {
  CUTLASS_HOST_DEVICE float operator()(float x, float, float) const { return tanhf(x); }
};

struct Softplus {
  CUTLASS_HOST_DEVICE float operator()(float x, float, float) const {
    return (x < 0 ? 0.0f : x) + log1pf(expf(x < 0 ? x : -x));  // expf of nothing positive cannot overflow
  }
};

struct Gelu {
  CUTLASS_HOST_DEVICE float operator()(float x, float, float) const {
    return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
  }
};

struct GeluTanh {
  CUTLASS_HOST_DEVICE float operator()(float x, float, float) const {
    return 0.5f * x * (1.0f + tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x)));
  }
};

enum class Source { kNone, kScale, kBefore, kAfter };

/// One element, in float32. `first` and `second` are the activation's numbers.
template <class Activation, Source kSource>
struct Chain {
  float first, second;

  CUTLASS_HOST_DEVICE float operator()(float x, float bias, float source) const {
    if (kSource == Source::kScale) x *= source;
    x += bias;
    if (kSource == Source::kBefore) x += source;
    x = Activation()(x, first, second);
    return kSource == Source::kAfter ? x + source : x;
  }
};

template <class Result, int kAccess, class Activation, Source kSource>
class Finish {
 public:
  using ElementOutput = Result;
  using ElementC = Result;
  using ElementZ = Result;
  using ElementT = Result;
  using ElementVector = Result;
  using ElementAccumulator = float;
  using ElementCompute = float;
  static int const kElementsPerAccess = kAccess;
  static int const kCount = kAccess;
  static bool const kIsSingleSource = true;
  static bool const kIsHeavy = true;
  static bool const kStoreZ = true;
  static bool const kStoreT = false;

  using FragmentAccumulator = cutlass::Array<float, kAccess>;
  using FragmentCompute = cutlass::Array<float, kAccess>;
  using FragmentC = cutlass::Array<Result, kAccess>;
  using FragmentZ = cutlass::Array<Result, kAccess>;
  using FragmentT = cutlass::Array<Result, kAccess>;
  using FragmentOutput = FragmentZ;

  struct Params {
    Chain<Activation, kSource> chain;
  };

  CUTLASS_HOST_DEVICE Finish(Params const& params) : chain_(params.chain) {}

  CUTLASS_HOST_DEVICE bool is_source_needed() const { return kSource != Source::kNone; }

  /// Called only where sums are split along k, which no kernel here does.
  CUTLASS_HOST_DEVICE void set_k_partition(int, int) {}

  CUTLASS_HOST_DEVICE void operator()(FragmentZ& z, FragmentT&, FragmentAccumulator const& x, FragmentC const& source,
                                      FragmentCompute const& bias) const {
    FragmentCompute given = cutlass::NumericArrayConverter<float, Result, kAccess>()(source);
    FragmentCompute made;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kAccess; ++i) made[i] = chain_(x[i], bias[i], given[i]);
    z = cutlass::NumericArrayConverter<Result, float, kAccess>()(made);
  }

  CUTLASS_HOST_DEVICE void operator()(FragmentZ& z, FragmentT&, FragmentAccumulator const& x,
                                      FragmentCompute const& bias) const {
    FragmentCompute made;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kAccess; ++i) made[i] = chain_(x[i], bias[i], 0.0f);
    z = cutlass::NumericArrayConverter<Result, float, kAccess>()(made);
  }

 private:
  Chain<Activation, kSource> chain_;
};

}  // namespace collage

using Activation = collage::COLLAGE_ACTIVATION;
constexpr collage::Source kSource = collage::Source::COLLAGE_SOURCE;

// One element on the host, so that what was compiled can be checked where there is no GPU.
COLLAGE_EXPORTED float collage_chain(float first, float second, float x, float bias, float source) {
  return collage::Chain<Activation, kSource>{first, second}(x, bias, source);
}

COLLAGE_EXPORTED char const* collage_status(int status) {
  return cutlassGetStatusString(static_cast<cutlass::Status>(status));
}
