#include "collectives/transports/nccl/nccl_library.h"

#include <dlfcn.h>

#include <type_traits>

#include "absl/strings/str_cat.h"

namespace tidetape::collectives {
namespace {

constexpr char kDefaultName[] = "libnccl.so.2";

std::string Advice() {
  return absl::StrCat("NCCL ", NcclVersionText(nccl::kLeastVersion),
                      " or newer is needed (pip install --no-deps --target DIR nvidia-nccl-cu13, then name "
                      "DIR/nvidia/nccl/lib/libnccl.so.2)");
}

}  // namespace

std::string NcclVersionText(int version) {
  // Up to 2.8 NCCL counted in thousands.
  if (version < 10000) return absl::StrCat(version / 1000, ".", version / 100 % 10, ".", version % 100);
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

absl::StatusOr<NcclLibrary> NcclLibrary::Load(const std::string& path) {
  NcclLibrary library;
  library.path_ = path.empty() ? kDefaultName : path;
  void* const handle = dlopen(library.path_.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return absl::FailedPreconditionError(absl::StrCat("cannot load NCCL: ", dlerror(), "; ", Advice()));
  std::string missing;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    if (function == nullptr && missing.empty()) missing = name;
  };
  nccl::NcclFunctions& functions = library.functions_;
  // The version first: an old library lacks functions, too.
  find(functions.GetVersion, "ncclGetVersion");
  if (!missing.empty()) return absl::FailedPreconditionError(absl::StrCat(library.path_, " is no NCCL: it has no ", missing));
  if (functions.GetVersion(&library.version_) != nccl::kSuccess || library.version_ < nccl::kLeastVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat(library.path_, " is NCCL ", NcclVersionText(library.version_), "; ", Advice()));
  }
#define TT_NCCL_FUNCTION(result, name, parameters) find(functions.name, "nccl" #name);
  TT_NCCL_FUNCTIONS(TT_NCCL_FUNCTION)
#undef TT_NCCL_FUNCTION
  if (!missing.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(library.path_, ", NCCL ", NcclVersionText(library.version_), ", has no ", missing));
  }
  return library;
}

absl::Status NcclLibrary::Check(absl::string_view call, nccl::Result result, nccl::Comm comm) const {
  if (result == nccl::kSuccess) return absl::OkStatus();
  std::string text = absl::StrCat(call, ": NCCL says '", functions_.GetErrorString(result), "'");
  const char* const last = functions_.GetLastError(comm);
  if (last != nullptr && *last != '\0') absl::StrAppend(&text, " (", last, ")");
  return absl::UnavailableError(text);
}

}  // namespace tidetape::collectives
