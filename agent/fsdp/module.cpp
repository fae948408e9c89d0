// The Python module tidetape._collectives: FSDP2's collectives over an arena. The only file here that knows pybind11's classes.
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/fsdp/arena_tensors.h"
#include "agent/fsdp/data_plane.h"
#include "agent/fsdp/link_probe.h"
#include "agent/fsdp/python_store.h"
#include "collectives/coverage.h"
#include "collectives/stable_hash.h"
#include "collectives/transports/hybrid/hybrid_transport.h"
#include "collectives/transports/tcp/socket.h"

namespace py = pybind11;

namespace tidetape::agent {
namespace {

using collectives::Coverage;
using collectives::DType;
using collectives::Group;
using collectives::GroupOptions;
using collectives::HybridTransport;
using collectives::Layout;
using collectives::LayoutOptions;
using collectives::LayoutSpec;
using collectives::MeshShape;
using collectives::Parameter;
using collectives::ReduceBuffers;
using collectives::Unit;

void Check(const absl::Status& status) {
  if (status.ok()) return;
  const std::string message = "tidetape: " + std::string(status.message());
  if (status.code() == absl::StatusCode::kInvalidArgument) throw py::value_error(message);
  throw std::runtime_error(message);
}

template <typename T>
T Value(absl::StatusOr<T> value) {
  Check(value.status());
  return *std::move(value);
}

DType DTypeOf(const py::object& type) { return ToDType(type.cast<at::ScalarType>()); }

// How ranks meet, beside the store.
struct JoinOptions {
  int rank = 0, size = 1;
  std::string name, token, address;
  double join_seconds = 120, wait_seconds = 300;
  int64_t chunk_bytes = int64_t{1} << 20;
  int32_t staging_slots = 0;
  int probe_per_host = 0;
  std::vector<std::vector<Group>> groups_to_prove;
};

// A data plane, how much memory its arena takes, and what the links between its ranks can do.
struct JoinedPlane {
  std::shared_ptr<DataPlane> plane;
  uint64_t private_bytes = 0, shared_bytes = 0;
  ProbedLinks links;
};

JoinedPlane Join(Layout layout, std::vector<Group> groups, py::function set, py::function wait, const JoinOptions& options) {
  PythonStore store(std::move(set), std::move(wait));
  const py::gil_scoped_release no_gil;
  GroupOptions group;
  group.rank = options.rank;
  group.size = options.size;
  group.signals = DataPlane::Signals(layout) + kProbeSignals;
  group.arena_bytes = DataPlane::ArenaBytes(layout, options.size);
  group.shared_region = {static_cast<uint64_t>(layout.shared_region().offset), static_cast<uint64_t>(layout.shared_region().bytes)};
  group.layout_hash = collectives::HashText(layout.hash());
  group.name = options.name;
  group.token = options.token;
  group.join_timeout = absl::Seconds(options.join_seconds);
  collectives::TcpOptions tcp;
  tcp.address = options.address;
  auto transport = Value(HybridTransport::Join(store, group, {}, tcp));
  const auto usage = transport->usage();
  DataPlane::Options plane;
  plane.pacing.schedule.chunk_bytes = options.chunk_bytes;
  plane.pacing.schedule.staging_slots = options.staging_slots;
  plane.pacing.network = tcp.pacing;
  plane.groups_to_prove = options.groups_to_prove;
  plane.executor.wait_limit = absl::Seconds(options.wait_seconds);
  // The plane owns the transport and calls this no longer than it lives.
  plane.set_network_pacing = [paced = transport.get()](const collectives::Pacing& pacing) { paced->SetPacing(pacing); };
  ProbedLinks links;
  if (options.probe_per_host > 0) {
    ProbeOptions probe;
    probe.per_host = options.probe_per_host;
    probe.scratch_bytes = static_cast<uint64_t>(layout.arena_bytes());
    probe.first_signal = DataPlane::Signals(layout);
    probe.set_pacing = plane.set_network_pacing;
    links = Value(ProbeLinks(*transport, probe));
    plane.set_network_pacing(tcp.pacing);
  }
  return {Value(DataPlane::Create(std::move(layout), std::move(groups), std::move(transport), plane)), usage.private_bytes,
          usage.shared_bytes, std::move(links)};
}

// Chunks to other hosts are bounded and kept apart by the transport, beside the training thread; the schedule only cuts them.
PacingCandidate MakeCandidate(const JoinedPlane& joined, int64_t generation, int64_t chunk_bytes, int32_t puts_in_flight,
                              double chunk_gap_seconds, bool ring, int32_t staging_slots) {
  PacingCandidate candidate;
  candidate.generation = generation;
  candidate.schedule = joined.plane->pacing().schedule;
  candidate.schedule.chunk_bytes = chunk_bytes;
  candidate.schedule.rail = ring ? collectives::RailAlgorithm::kRing : collectives::RailAlgorithm::kDoubling;
  candidate.schedule.staging_slots = staging_slots;
  candidate.network.chunk_bytes = static_cast<uint64_t>(std::max<int64_t>(1, chunk_bytes));
  candidate.network.chunks_in_flight = puts_in_flight >= 256 ? 0 : puts_in_flight;
  candidate.network.gap = absl::Seconds(std::max(0.0, chunk_gap_seconds));
  return candidate;
}

py::object ToDict(const std::optional<ProbedLink>& link) {
  if (!link.has_value()) return py::none();
  py::list windows;
  for (const ProbedWindow& window : link->windows) windows.append(py::make_tuple(window.window_bytes, window.bytes_per_second));
  py::dict out;
  out["bytes_per_second"] = link->bytes_per_second;
  out["latency_seconds"] = link->latency_seconds;
  out["put_seconds"] = link->put_seconds;
  out["windows"] = windows;
  return out;
}

// By parameter of the unit. A gradient that is None is not there; an output is a float32 tensor and whether to add to it.
ReduceBuffers ToBuffers(const std::vector<std::optional<at::Tensor>>& gradients,
                        const std::vector<std::pair<std::optional<at::Tensor>, bool>>& outputs) {
  ReduceBuffers buffers;
  for (const auto& gradient : gradients) {
    buffers.gradients.emplace_back();
    if (!gradient.has_value()) continue;
    TORCH_CHECK(gradient->is_contiguous(), "tidetape: a gradient must be contiguous");
    buffers.gradients.back() = {static_cast<const std::byte*>(gradient->const_data_ptr()), gradient->nbytes()};
  }
  for (const auto& [output, accumulate] : outputs) {
    buffers.outputs.push_back({{}, accumulate});
    if (!output.has_value()) continue;
    TORCH_CHECK(output->is_contiguous() && output->scalar_type() == at::kFloat, "tidetape: a shard must be contiguous float32");
    buffers.outputs.back().shard = {output->mutable_data_ptr<float>(), static_cast<size_t>(output->numel())};
  }
  return buffers;
}

std::string HashesText(uint64_t gather, uint64_t reduction) {
  return collectives::HashText(gather) + " " + collectives::HashText(reduction);
}

std::map<int32_t, std::string> ProvedHashes(const JoinedPlane& self, int32_t unit) {
  std::map<int32_t, std::string> texts;
  const auto& reductions = self.plane->ProvedReductions(unit);
  for (const auto& [rank, hash] : self.plane->ProvedGathers(unit)) texts[rank] = HashesText(hash, reductions.at(rank));
  return texts;
}

std::vector<py::tuple> Uncovered(const Layout& layout) {
  std::vector<py::tuple> reasons;
  for (const auto& parameter : collectives::CoverageOf(layout).uncovered) {
    reasons.push_back(py::make_tuple(parameter.unit, parameter.parameter, parameter.reason));
  }
  return reasons;
}

void DefineLayout(py::module_& m) {
  py::class_<MeshShape>(m, "MeshShape")
      .def(py::init([](std::string name, int32_t shards, int32_t replicas, int32_t per_node) {
             return MeshShape{std::move(name), shards, replicas, per_node};
           }),
           py::arg("name"), py::arg("shards"), py::arg("replicas"), py::arg("per_node"));
  py::class_<Parameter>(m, "Parameter")
      .def(py::init([](std::string name, std::vector<int64_t> shape, const py::object& dtype, int32_t shard_dim, bool frozen,
                       bool has_extension) {
             return Parameter{
                 std::move(name), std::move(shape), DTypeOf(dtype), DTypeOf(dtype), shard_dim, frozen, has_extension, false, ""};
           }),
           py::arg("name"), py::arg("shape"), py::arg("dtype"), py::arg("shard_dim"), py::arg("frozen"), py::arg("has_extension"));
  py::class_<Unit>(m, "Unit").def(
      py::init([](std::string name, std::string mesh, std::vector<Parameter> parameters, bool keeps_slot) {
        return Unit{std::move(name), std::move(mesh), std::move(parameters), keeps_slot};
      }),
      py::arg("name"), py::arg("mesh"), py::arg("parameters"), py::arg("keeps_slot"));
  py::class_<Layout>(m, "Layout", "Where everything lies in the arena; see collectives/layout.h.")
      .def(py::init([](std::vector<MeshShape> meshes, std::vector<Unit> units, int32_t rotating_slots, int32_t host_ranks,
                       int64_t staging_bytes) {
             LayoutOptions options;
             options.rotating_slots = rotating_slots;
             options.host_ranks = host_ranks;
             options.staging_bytes = staging_bytes;
             // A unit may be reduced while it stays unsharded.
             options.spare_staging = true;
             return Value(Layout::Create({std::move(meshes), std::move(units), options}));
           }),
           py::arg("meshes"), py::arg("units"), py::arg("rotating_slots"), py::arg("host_ranks"), py::arg("staging_bytes"))
      .def_property_readonly("hash", [](const Layout& layout) { return collectives::HashText(layout.hash()); })
      .def_property_readonly("description", &Layout::description, "One line a field; what ranks compare.")
      .def_property_readonly("covered_share", [](const Layout& layout) { return collectives::CoverageOf(layout).share(); })
      .def_property_readonly("uncovered", &Uncovered, "(unit, parameter, reason) of what cannot go the zero-copy way.")
      .def("padding", [](const Layout& layout, int32_t unit) {
        std::vector<std::pair<int64_t, int64_t>> regions;
        for (const auto& region : layout.Padding(unit)) regions.emplace_back(region.offset, region.bytes);
        return regions;
      });
  m.def(
      "compare_layouts",
      [](const std::string& own, const std::string& other, int32_t own_rank, int32_t other_rank) {
        return std::string(collectives::CompareLayouts(own, other, own_rank, other_rank).message());
      },
      "The first difference of two descriptions, in words; empty where there is none.");
}

void DefinePlane(py::module_& m) {
  py::class_<Group>(m, "Group")
      .def(
          py::init([](std::vector<int32_t> shards, int32_t per_node, int32_t self, std::vector<int32_t> replicas, int32_t replica) {
            return Group{std::move(shards), per_node, self, std::move(replicas), replica};
          }),
          py::arg("shards"), py::arg("per_node"), py::arg("self"), py::arg("replicas"), py::arg("replica"))
      .def_readonly("shards", &Group::shards)
      .def_readonly("per_node", &Group::per_node)
      .def_readonly("self", &Group::self)
      .def_readonly("replicas", &Group::replicas)
      .def_readonly("replica", &Group::replica);
  py::class_<JoinOptions>(m, "JoinOptions")
      .def(py::init<>())
      .def_readwrite("rank", &JoinOptions::rank)
      .def_readwrite("size", &JoinOptions::size)
      .def_readwrite("name", &JoinOptions::name, "Of the group in the store; unique for each start.")
      .def_readwrite("token", &JoinOptions::token, "The group's secret; empty: rank 0 draws one.")
      .def_readwrite("address", &JoinOptions::address, "Of this host as other hosts reach it; empty where all ranks are on one.")
      .def_readwrite("join_seconds", &JoinOptions::join_seconds)
      .def_readwrite("wait_seconds", &JoinOptions::wait_seconds, "Limit of each wait in a collective.")
      .def_readwrite("chunk_bytes", &JoinOptions::chunk_bytes)
      .def_readwrite("staging_slots", &JoinOptions::staging_slots)
      .def_readwrite("probe_per_host", &JoinOptions::probe_per_host,
                     "Ranks of each host, where links are to be measured; 0: they are not. The same on all ranks.")
      .def_readwrite("groups_to_prove", &JoinOptions::groups_to_prove,
                     "By unit, of all ranks of its mesh: schedules are proved before they run. Empty: they are not.");
  py::class_<CollectiveCounts>(m, "CollectiveCounts")
      .def_readonly("gather_seconds", &CollectiveCounts::gather_seconds)
      .def_readonly("reduce_seconds", &CollectiveCounts::reduce_seconds)
      .def_readonly("gathered_bytes", &CollectiveCounts::gathered_bytes)
      .def_readonly("network_bytes", &CollectiveCounts::network_bytes);
  py::class_<GradientNotice>(m, "GradientNotice")
      .def(py::init([](int32_t unit, bool widened, double divide_factor, std::vector<bool> present) {
             return GradientNotice{unit, widened, divide_factor, false, std::move(present)};
           }),
           py::arg("unit"), py::arg("widened"), py::arg("divide_factor"), py::arg("present"))
      .def_readonly("widened", &GradientNotice::widened)
      .def_readonly("slot_vacated", &GradientNotice::slot_vacated, "Rows wait in the unit's slot, and else beside it.")
      .def_readonly("present", &GradientNotice::present);

  const auto no_gil = py::call_guard<py::gil_scoped_release>();
  py::class_<JoinedPlane>(m, "DataPlane", "The collectives of one model; see agent/fsdp/data_plane.h. Errors are RuntimeErrors.")
      .def_static("join", &Join, py::arg("layout"), py::arg("groups"), py::arg("store_set"), py::arg("store_wait"),
                  py::arg("options"), "Meets the other ranks. Collective.")
      .def_property_readonly(
          "rank", [](const JoinedPlane& self) { return self.plane->rank(); }, "In the group.")
      .def_readonly("private_bytes", &JoinedPlane::private_bytes, "Mapped for this rank alone.")
      .def_readonly("shared_bytes", &JoinedPlane::shared_bytes, "Mapped once a host.")
      .def_property_readonly(
          "local_link", [](const JoinedPlane& self) { return ToDict(self.links.local); },
          "As measured between ranks of a host: bytes_per_second, latency_seconds, put_seconds, windows. None where it was not.")
      .def_property_readonly(
          "network_link", [](const JoinedPlane& self) { return ToDict(self.links.network); }, "The same between hosts.")
      .def(
          "arm",
          [](const JoinedPlane& self, int64_t generation, int64_t chunk_bytes, int32_t puts_in_flight, double chunk_gap_seconds,
             bool ring, int32_t staging_slots) {
            Check(self.plane->Arm(
                MakeCandidate(self, generation, chunk_bytes, puts_in_flight, chunk_gap_seconds, ring, staging_slots)));
          },
          py::arg("generation"), py::arg("chunk_bytes"), py::arg("puts_in_flight"), py::arg("chunk_gap_seconds"), py::arg("ring"),
          py::arg("staging_slots"),
          "This rank is willing to switch to the pacing; see DataPlane::Arm. ValueError where no schedule can be made of it.")
      .def_property_readonly("pacing_generation", [](const JoinedPlane& self) { return self.plane->pacing().generation; })
      .def("take_counts", [](const JoinedPlane& self) { return self.plane->TakeCounts(); })
      .def("holder", [](const JoinedPlane& self, int32_t unit) { return self.plane->Holder(unit); })
      .def(
          "schedule_hashes",
          [](const JoinedPlane& self, int32_t unit) {
            return HashesText(self.plane->GatherHash(unit), self.plane->ReduceHash(unit));
          },
          "Of the unit's all-gather and ordinary reduce-scatter on this rank.")
      .def("proved_hashes", &ProvedHashes,
           "The same for all ranks of the unit's mesh, by rank of the group, as proved at the start.")
      .def("gathered_tensors", [](const JoinedPlane& self, int32_t unit) { return MakeGatheredTensors(*self.plane, unit); })
      .def("own_shards", [](const JoinedPlane& self, int32_t unit) { return OwnShards(self.plane, unit); })
      .def("lend", [](const JoinedPlane& self, int32_t unit,
                      const std::vector<at::Tensor>& gathered) { LendSlot(self.plane, unit, gathered); })
      .def(
          "admit",
          [](const JoinedPlane& self, int32_t unit, bool reduction_next, int64_t step) {
            Check(self.plane->Admit(unit, reduction_next, step));
          },
          no_gil)
      .def(
          "send", [](const JoinedPlane& self, int32_t unit, int64_t step) { Check(self.plane->Send(unit, step)); }, no_gil)
      .def(
          "finish", [](const JoinedPlane& self, int32_t unit, int64_t step) { Check(self.plane->Finish(unit, step)); }, no_gil)
      .def(
          "release", [](const JoinedPlane& self, int32_t unit) { self.plane->Release(unit); }, no_gil)
      .def(
          "agree",
          [](const JoinedPlane& self, const GradientNotice& own, int64_t step) { return Value(self.plane->Agree(own, step)); },
          no_gil)
      .def(
          "reduce_gradients",
          [](const JoinedPlane& self, const GradientNotice& agreed, const std::vector<std::optional<at::Tensor>>& gradients,
             const std::vector<std::pair<std::optional<at::Tensor>, bool>>& outputs,
             int64_t step) { Check(self.plane->ReduceGradients(agreed, ToBuffers(gradients, outputs), step)); },
          no_gil)
      .def(
          "finish_reduction",
          [](const JoinedPlane& self, const GradientNotice& agreed,
             const std::vector<std::pair<std::optional<at::Tensor>, bool>>& outputs,
             int64_t step) { Check(self.plane->FinishReduction(agreed, ToBuffers({}, outputs), step)); },
          no_gil)
      .def(
          "fill",
          [](const JoinedPlane& self, int64_t offset, int64_t bytes, uint8_t value) {
            const auto region = self.plane->arena().subspan(static_cast<size_t>(offset), static_cast<size_t>(bytes));
            std::fill(region.begin(), region.end(), static_cast<std::byte>(value));
          },
          "For tests that poison padding.");
}

}  // namespace

PYBIND11_MODULE(_collectives, m) {
  DefineLayout(m);
  DefinePlane(m);
  m.def(
      "host_id", [] { return Value(collectives::HostId()); }, "Equal for ranks that can share memory.");
  m.def(
      "address_towards", [](const std::string& remote) { return Value(collectives::AddressTowards(remote)); },
      "The address from which this host reaches another.");
}

}  // namespace tidetape::agent
