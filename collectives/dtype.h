// Element types that the collectives move. Only bfloat16 and float32 are ever added.
#ifndef TIDETAPE_COLLECTIVES_DTYPE_H_
#define TIDETAPE_COLLECTIVES_DTYPE_H_

#include <cstdint>

namespace tidetape::collectives {

enum class DType : uint8_t { kBFloat16, kFloat16, kFloat32, kFloat64, kUInt8 };

constexpr int64_t DTypeBytes(DType dtype) {
  switch (dtype) {
    case DType::kUInt8:
      return 1;
    case DType::kBFloat16:
    case DType::kFloat16:
      return 2;
    case DType::kFloat32:
      return 4;
    case DType::kFloat64:
      return 8;
  }
  return 0;
}

// As PyTorch writes it, without "torch.".
constexpr const char* DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kUInt8:
      return "uint8";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kFloat16:
      return "float16";
    case DType::kFloat32:
      return "float32";
    case DType::kFloat64:
      return "float64";
  }
  return "unknown";
}

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_DTYPE_H_
