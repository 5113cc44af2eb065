// The projections of a transformer block, fused: q/k/v into one kernel, gate/up into one kernel with
// the SwiGLU between them. Compares the fused outputs with the layers apart and prints what serves them.
#include <clikart/clikart.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace {

using clikart::DType;
using clikart::Layer;
using clikart::Linear;
using clikart::LinearOptions;
using clikart::Shape;
using clikart::Tensor;

[[noreturn]] void Fail(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  std::exit(1);
}

template <typename T>
T OrFail(absl::StatusOr<T> result) {
  if (!result.ok()) Fail(result.status());
  return *std::move(result);
}

Tensor Random(const Shape& shape, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0f, 0.05f);
  std::vector<float> values(static_cast<size_t>(shape[0] * shape[1]));
  for (float& value : values) value = normal(generator);
  return OrFail(Tensor::FromVector<float>(shape, DType::kFloat32, values));
}

std::shared_ptr<Layer> Projection(int64_t in, int64_t out, unsigned seed, const std::string& name) {
  LinearOptions options;
  options.bias = false;
  options.name = name;
  std::shared_ptr<Linear> layer = OrFail(Linear::Create(in, out, options));
  if (absl::Status status = layer->Bind({{"weight", Random({out, in}, seed)}}); !status.ok()) Fail(status);
  return layer;
}

bool SameBits(const Tensor& a, const Tensor& b) {
  const Tensor left = OrFail(a.Contiguous()), right = OrFail(b.Contiguous());
  return a.shape() == b.shape() &&
         std::memcmp(OrFail(left.Pin()).data, OrFail(right.Pin()).data, static_cast<size_t>(left.nbytes())) == 0;
}

}  // namespace

int main() {
  constexpr int64_t kWidth = 256, kHeads = 64, kHidden = 688;
  const auto make_qkv = [] {
    return std::vector<std::shared_ptr<Layer>>{Projection(kWidth, kWidth, 1, "q"), Projection(kWidth, kHeads, 2, "k"),
                                               Projection(kWidth, kHeads, 3, "v")};
  };
  const std::vector<std::shared_ptr<Layer>> parts = make_qkv(), apart = make_qkv();
  clikart::FuseOptions qkv_options;
  qkv_options.name = "qkv";
  const auto qkv = OrFail(clikart::FuseLinears(parts, qkv_options));

  const std::vector<std::shared_ptr<Layer>> halves = {Projection(kWidth, kHidden, 4, "gate"),
                                                      Projection(kWidth, kHidden, 5, "up")};
  clikart::FuseOptions mlp_options;
  mlp_options.name = "gate_up";
  mlp_options.activation = clikart::Activation::kSwiglu;
  const auto mlp = OrFail(clikart::FuseLinears(halves, mlp_options));

  // Compile before the first request.
  auto model = std::make_shared<clikart::ModuleList>(std::vector<std::shared_ptr<clikart::Module>>{qkv, mlp});
  const clikart::WarmupOptions warmup{.inputs = {{{1, kWidth}, DType::kFloat32}}};
  const clikart::WarmupReport report = OrFail(clikart::Warmup(*model, warmup));
  for (const clikart::WarmupItem& item : report.items) {
    if (!item.status.ok()) Fail(item.status);
    std::printf("warm-up of %s: %.2f ms\n", item.layer.c_str(), item.seconds * 1e3);
  }

  const Tensor x = Random({12, kWidth}, 6);
  const clikart::DispatchCounter counter;
  const Tensor joined = OrFail(qkv->Forward(x));
  const std::vector<Tensor> split = OrFail(clikart::SplitWithSizes(joined, qkv->split_sizes()));
  std::printf("q, k and v took %lld dispatch\n", static_cast<long long>(counter.total()));
  for (size_t i = 0; i < apart.size(); ++i) {
    if (!SameBits(split[i], OrFail(apart[i]->Forward(x)))) {
      std::fprintf(stderr, "%s differs from the layer alone\n", parts[i]->name().c_str());
      return 1;
    }
  }
  const Tensor hidden = OrFail(mlp->Forward(x));
  std::printf("gate and up give %s\n\n%s\n%s", hidden.ToString().c_str(), qkv->Explain().c_str(),
              mlp->Explain().c_str());
  return 0;
}
