// The Python module tidetape._C: the session and the meter. The only file that knows pybind11.
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <string>
#include <tuple>
#include <unordered_set>
#include <utility>
#include <vector>

#include "agent/measure/meter.h"
#include "agent/session/session.h"
#include "agent/tape/intercept.h"
#include "agent/tape/recorder.h"
#include "agent/tape/saved_hooks.h"

namespace py = pybind11;

namespace tidetape::agent {
namespace {

// Tensors among a block's arguments, through the containers that models use, in order.
void CollectTensors(PyObject* object, int depth, std::vector<at::Tensor>& tensors) {
  if (THPVariable_Check(object)) {
    tensors.push_back(THPVariable_Unpack(object));
  } else if (depth > 0 && PyTuple_Check(object)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i) CollectTensors(PyTuple_GET_ITEM(object, i), depth - 1, tensors);
  } else if (depth > 0 && PyList_Check(object)) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(object); ++i) CollectTensors(PyList_GET_ITEM(object, i), depth - 1, tensors);
  } else if (depth > 0 && PyDict_Check(object)) {
    PyObject* key = nullptr;
    PyObject* value = nullptr;
    for (Py_ssize_t at = 0; PyDict_Next(object, &at, &key, &value);) CollectTensors(value, depth - 1, tensors);
  }
}

// Of the storages that a block made and gave back.
int64_t NewBytes(const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& outputs) {
  std::unordered_set<const c10::StorageImpl*> counted;
  for (const at::Tensor& input : inputs) {
    if (input.has_storage()) counted.insert(input.storage().unsafeGetStorageImpl());
  }
  int64_t bytes = 0;
  for (const at::Tensor& output : outputs) {
    if (!output.has_storage() || !counted.insert(output.storage().unsafeGetStorageImpl()).second) continue;
    bytes += static_cast<int64_t>(output.storage().nbytes());
  }
  return bytes;
}

// A recording-free pass through the boxed fallback, to measure what recording adds to it.
class BareRedispatch {
 public:
  void Enter() { SetIntercepting(true); }
  void Exit(const py::args&) { SetIntercepting(false); }
};

// Recording alone, to measure it apart from the saved-tensor hooks: autograd saves by itself, and the tape is dropped.
class RecordingWithoutHooks {
 public:
  void Enter() {
    Recorder& recorder = Recorder::OfThisThread();
    recorder.set_auditing(false);
    recorder.set_packing(false);
    recorder.Begin(c10::make_intrusive<Tape>(block_, 0, observer_), nullptr, {});
    SetIntercepting(true);
  }
  void Exit(const py::args&) {
    SetIntercepting(false);
    Recorder::OfThisThread().End();
    Recorder::OfThisThread().set_packing(true);
  }

 private:
  class Nobody final : public TapeObserver {
    void OnBackwardBegin(Tape&) override {}
    void OnBackwardEnd(Tape&) override {}
    void OnAbandoned(Tape&) override {}
  };
  const std::shared_ptr<Block> block_ = std::make_shared<Block>("recording without hooks");
  const std::shared_ptr<Nobody> observer_ = std::make_shared<Nobody>();
};

// A plan made by hand: for each block, actions by site (a tt_action) beside the default for what autograd packs, and its option.
using HandMadePlan = std::vector<std::tuple<std::string, std::vector<std::pair<Site, int>>, int32_t>>;

std::shared_ptr<const HeldPlan> ToHeldPlan(const HandMadePlan& given, bool save_by_default) {
  std::vector<std::vector<tt_site_action>> sites;
  std::vector<tt_block_plan> blocks;
  for (const auto& [name, actions, option] : given) {
    std::vector<tt_site_action>& list = sites.emplace_back();
    for (const auto& [site, action] : actions) list.push_back({site, static_cast<uint8_t>(action)});
    tt_block_plan block = {};
    block.name = name.c_str();
    block.sites = list.data();
    block.num_sites = list.size();
    block.option = option;
    block.default_action = save_by_default ? TT_ACTION_SAVE : TT_ACTION_REPLAY;
    blocks.push_back(block);
  }
  tt_plan plan = {};
  plan.blocks = blocks.data();
  plan.num_blocks = blocks.size();
  plan.feasible = 1;
  plan.reason = "made by hand";
  return std::make_shared<const HeldPlan>(plan);
}

py::dict ToDict(const std::map<std::string, std::vector<SiteInfo>>& sites) {
  py::dict out;
  for (const auto& [block, list] : sites) {
    py::list entries;
    for (const SiteInfo& info : list) {
      if (info.kind != StorageKind::kIntermediate) continue;
      py::dict entry;
      entry["site"] = info.site;
      entry["label"] = info.label;
      entry["bytes"] = info.bytes;
      entry["consumed"] = info.consumed;
      entry["must_save"] = info.must_save;
      entries.append(entry);
    }
    out[py::str(block)] = entries;
  }
  return out;
}

py::dict ToDict(const StepStats& stats) {
  py::dict out;
  out["step"] = stats.step;
  out["generation"] = stats.generation;
  out["step_seconds"] = stats.step_seconds;
  out["step_peak_bytes"] = stats.step_peak_bytes;
  out["saved_bytes"] = stats.saved_bytes;
  out["replay_seconds"] = stats.replay_seconds;
  out["replayed_ops"] = stats.replayed_ops;
  out["demoted_ops"] = stats.demoted_ops;
  out["demoted_bytes"] = stats.demoted_bytes;
  out["consumed_bytes"] = stats.consumed_bytes;
  out["moved_bytes"] = stats.moved_bytes;
  out["recorded_ops"] = stats.recorded_ops;
  out["bookkeeping_bytes"] = stats.bookkeeping_bytes;
  out["agent_seconds"] = stats.agent_seconds;
  out["live_bytes"] = stats.live_bytes;
  return out;
}

py::object ToDict(const std::shared_ptr<const HeldPlan>& plan) {
  if (plan == nullptr) return py::none();
  py::dict out;
  out["generation"] = plan->generation;
  out["memory_limit_bytes"] = plan->memory_limit_bytes;
  out["step_peak_bytes"] = plan->step_peak_bytes;
  out["headroom_bytes"] = plan->headroom_bytes;
  out["replay_seconds"] = plan->replay_seconds;
  out["saved_bytes"] = plan->saved_bytes;
  out["moved_bytes"] = plan->moved_bytes;
  out["move_seconds"] = plan->move_seconds;
  out["lower_bound_seconds"] = plan->lower_bound_seconds;
  out["gap_ratio"] = plan->gap_ratio;
  out["feasible"] = plan->feasible;
  out["least_peak_bytes"] = plan->least_peak_bytes;
  out["least_peak_holder"] = plan->least_peak_holder;
  out["peak_holder"] = plan->peak_holder;
  out["reason"] = plan->reason;
  out["etag"] = plan->etag;
  out["pacing"] = py::none();
  if (plan->pacing.has_value()) {
    py::dict pacing;
    pacing["algorithm"] = plan->pacing->algorithm == TT_GATHER_RING ? "ring" : "recursive doubling";
    pacing["chunk_bytes"] = plan->pacing->chunk_bytes;
    pacing["puts_in_flight"] = plan->pacing->puts_in_flight;
    pacing["chunk_gap_seconds"] = plan->pacing->chunk_gap_seconds;
    pacing["prefetch_depth"] = plan->pacing->prefetch_depth;
    pacing["staging_slots"] = plan->pacing->staging_slots;
    pacing["slot_reuse"] = plan->pacing->slot_reuse != 0;
    pacing["gather_seconds"] = plan->pacing->gather_seconds;
    out["pacing"] = pacing;
  }
  py::list blocks;
  for (const PlannedBlock& block : plan->blocks) {
    py::dict entry;
    entry["name"] = block.name;
    entry["saved"] = block.num_saved;
    entry["replayed"] = block.num_replayed;
    entry["moved"] = block.num_moved;
    entry["saved_bytes"] = block.saved_bytes;
    entry["moved_bytes"] = block.moved_bytes;
    entry["replay_seconds"] = block.replay_seconds;
    entry["own_peak_bytes"] = block.own_peak_bytes;
    entry["option"] = block.option;
    blocks.append(entry);
  }
  out["blocks"] = blocks;
  return out;
}

}  // namespace
}  // namespace tidetape::agent

PYBIND11_MODULE(_C, m) {
  using namespace tidetape::agent;
  m.doc() = "Tidetape's agent: tapes, measurement and the link to the planner.";

  m.def(
      "install",
      [] {
        InstallSavedHooks();
        return InstallInterception();
      },
      "Puts the tape between torch and autograd, once a process. Returns '' or why this torch cannot be intercepted.");
  m.def("meter_install", &meter::Install, "Puts the metering allocator in front of libtorch's CPU allocator.");
  m.def(
      "meter_adopt",
      [](const at::Tensor& tensor) {
        if (tensor.unsafeGetTensorImpl()->has_storage()) meter::Adopt(tensor.storage().unsafeGetStorageImpl());
      },
      py::arg("tensor"), "Counts the storage of a tensor that was allocated before the meter was installed.");
  m.def("meter_count", &meter::Count, py::arg("bytes"),
        "Counts memory that libtorch's allocator did not give; negative as it goes.");
  m.def("meter_live_bytes", &meter::LiveBytes, "CPU tensor bytes alive now.");
  m.def("meter_peak_bytes", &meter::PeakBytes, "The most CPU tensor bytes alive since the last meter_reset_peak().");
  m.def("meter_reset_peak", &meter::ResetPeak, "Starts a new interval for meter_peak_bytes().");
  m.def("intercepted_ops", &InterceptedOps, "Ops of this thread that went through the interception so far.");

  py::class_<BareRedispatch>(m, "BareRedispatch",
                             "Context: ops go through the boxed fallback and straight on, nothing is recorded.")
      .def(py::init<>())
      .def("__enter__", &BareRedispatch::Enter)
      .def("__exit__", &BareRedispatch::Exit);

  py::class_<RecordingWithoutHooks>(m, "RecordingWithoutHooks",
                                    "Context: ops are recorded on a tape that nobody reads; autograd saves by itself.")
      .def(py::init<>())
      .def("__enter__", &RecordingWithoutHooks::Enter)
      .def("__exit__", &RecordingWithoutHooks::Exit);

  py::enum_<Session::Audit>(m, "Audit")
      .value("NEVER", Session::Audit::kNever)
      .value("NEW_STRUCTURES", Session::Audit::kNewStructures)
      .value("EVERY_RECORDING", Session::Audit::kEveryRecording);
  m.attr("ACTION_SAVE") = static_cast<int>(TT_ACTION_SAVE);
  m.attr("ACTION_REPLAY") = static_cast<int>(TT_ACTION_REPLAY);
  m.attr("ACTION_MOVE") = static_cast<int>(TT_ACTION_MOVE);

  py::class_<LinkOptions>(m, "LinkOptions")
      .def(py::init<>())
      .def_readwrite("library", &LinkOptions::library)
      .def_readwrite("planner", &LinkOptions::planner)
      .def_readwrite("job", &LinkOptions::job)
      .def_readwrite("incarnation", &LinkOptions::incarnation)
      .def_readwrite("incarnation_order", &LinkOptions::incarnation_order)
      .def_readwrite("rank", &LinkOptions::rank)
      .def_readwrite("world_size", &LinkOptions::world_size)
      .def_readwrite("node", &LinkOptions::node)
      .def_readwrite("torch_version", &LinkOptions::torch_version)
      .def_readwrite("device", &LinkOptions::device)
      .def_readwrite("agent_version", &LinkOptions::agent_version);

  py::class_<LinkFigures>(m, "LinkFigures")
      .def(py::init([](double bytes_per_second, double latency_seconds, double put_seconds,
                       std::vector<std::pair<int64_t, double>> windows) {
             return LinkFigures{bytes_per_second, latency_seconds, put_seconds, std::move(windows)};
           }),
           py::arg("bytes_per_second"), py::arg("latency_seconds"), py::arg("put_seconds"), py::arg("windows"));
  py::class_<CollectiveFigures>(m, "CollectiveFigures", "As tidetape.v1.CollectiveReport.")
      .def(py::init<>())
      .def_readwrite("gather_seconds", &CollectiveFigures::gather_seconds)
      .def_readwrite("reduce_seconds", &CollectiveFigures::reduce_seconds)
      .def_readwrite("covered_bytes", &CollectiveFigures::covered_bytes)
      .def_readwrite("covered_ratio", &CollectiveFigures::covered_ratio)
      .def_readwrite("network_bytes", &CollectiveFigures::network_bytes)
      .def_readwrite("pacing_generation", &CollectiveFigures::pacing_generation)
      .def_readwrite("ranks", &CollectiveFigures::ranks)
      .def_readwrite("nodes", &CollectiveFigures::nodes)
      .def_readwrite("local", &CollectiveFigures::local)
      .def_readwrite("network", &CollectiveFigures::network)
      .def_readwrite("units", &CollectiveFigures::units, "(gathered bytes, how many), by size.");

  m.def(
      "tensors_in",
      [](const py::object& object) {
        std::vector<at::Tensor> tensors;
        CollectTensors(object.ptr(), 5, tensors);
        return tensors;
      },
      py::arg("object"), "The tensors among a block's arguments or results, through tuples, lists and dicts.");

  py::class_<OptionExecution, std::shared_ptr<OptionExecution>>(m, "OptionExecution",
                                                                "One execution of a block by one of its options.")
      .def_property_readonly("option", &OptionExecution::option)
      .def_property_readonly("first", &OptionExecution::first)
      .def(
          "end_forward",
          [](OptionExecution& execution, const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& outputs) {
            execution.EndForward(NewBytes(inputs, outputs));
          },
          py::arg("inputs"), py::arg("outputs"))
      .def("begin_backward", &OptionExecution::BeginBackward)
      .def("end_backward", &OptionExecution::EndBackward);

  py::class_<Session, std::shared_ptr<Session>>(m, "Session")
      .def(py::init<int64_t>(), py::arg("memory_limit_bytes"))
      .def("add_block", &Session::AddBlock, py::arg("name"))
      .def(
          "set_names",
          [](Session& session, int32_t block, const Block::NamedTensors& parameters, const Block::NamedTensors& buffers) {
            session.block(block).SetNames(parameters, buffers);
          },
          py::arg("block"), py::arg("parameters"), py::arg("buffers"))
      .def(
          "add_inner_unit",
          [](Session& session, int32_t block, const Block::NamedTensors& parameters) {
            session.block(block).AddInnerUnit(parameters);
          },
          py::arg("block"), py::arg("parameters"))
      .def("pause", &Session::Pause)
      .def("resume", &Session::Resume)
      .def("wants_names", [](Session& session, int32_t block) { return session.block(block).wants_names(); })
      .def("begin_block",
           [](Session& session, int32_t block, const py::tuple& args, const py::dict& kwargs) {
             std::vector<at::Tensor> inputs;
             CollectTensors(args.ptr(), 4, inputs);
             CollectTensors(kwargs.ptr(), 4, inputs);
             return session.BeginBlock(block, inputs);
           })
      .def("end_block", &Session::EndBlock)
      .def("set_options", &Session::SetOptions, py::arg("block"), py::arg("kind"), py::arg("structure"), py::arg("labels"))
      .def("drop_options", &Session::DropOptions, py::arg("block"))
      .def("begin_option", &Session::BeginOption, py::arg("block"))
      .def(
          "pass_through", [](Session& session, const std::string& reason) { session.PassThrough(reason.c_str()); },
          py::arg("reason"))
      .def("set_audit", &Session::SetAudit, py::arg("audit"))
      .def("note_collectives", &Session::NoteCollectives, py::arg("figures"))
      .def("note_optimizer_step", &Session::NoteOptimizerStep)
      .def("connect", &Session::Connect)
      .def("disconnect", &Session::Disconnect, py::arg("timeout_seconds"), py::call_guard<py::gil_scoped_release>())
      .def("planner_state",
           [](Session& session) {
             std::string error;
             const bool connected = session.connected_to_planner(error);
             return std::make_pair(connected, error);
           })
      .def(
          "finish_step", [](Session& session, double agent_seconds) { return ToDict(session.FinishStep(agent_seconds)); },
          py::arg("agent_seconds"))
      .def("held_generation", &Session::held_generation)
      .def("active_generation", &Session::active_generation)
      .def("activate", &Session::Activate, py::arg("generation"))
      .def("plan", [](Session& session) { return ToDict(session.plan()); })
      .def("set_memory_limit", &Session::SetMemoryLimit, py::arg("bytes"))
      .def("set_host_limit", &Session::SetHostLimit, py::arg("bytes"))
      .def("host_bytes_per_second", &Session::host_bytes_per_second)
      .def(
          "impose",
          [](Session& session, const HandMadePlan& plan, bool save_by_default) {
            session.Impose(ToHeldPlan(plan, save_by_default));
          },
          py::arg("blocks"), py::arg("save_by_default"))
      .def("explain", &Session::Explain)
      .def("sites", [](Session& session) { return ToDict(session.Sites()); })
      .def("demotions", &Session::Demotions)
      .def("passed_through", &Session::PassedThrough);
}
