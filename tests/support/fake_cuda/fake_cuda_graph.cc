// The fake driver's graphs: work that was queued on streams during a capture is queued again on one
// stream, in its original order. A stream joins a capture by waiting for one of its events.
#include "tests/support/fake_cuda/fake_cuda_state.h"

#include <utility>

namespace gyre::tests {

using namespace loaded;

namespace {

thread_local bool called_out = false;

// `mutex` is held: what is to be destroyed is returned.
std::vector<CuUserObject> let_go(const std::vector<CuUserObject>& objects, unsigned count) {
  std::vector<CuUserObject> last;
  for (CuUserObject object : objects) {
    object->references -= count;
    if (object->references > 0) continue;
    fake->user_objects.erase(object);
    last.push_back(object);
  }
  return last;
}

void destroy(const std::vector<CuUserObject>& objects) {
  for (CuUserObject object : objects) {
    fake_call_out([&] { object->destroy(object->body); });
    delete object;
  }
}

template <typename Body>
CuResult destroy_one(std::set<Body*>& all, Body* one) {
  std::vector<CuUserObject> last;
  {
    const std::lock_guard lock(fake->mutex);
    if (all.erase(one) == 0) return cu::invalid_value;
    last = let_go(one->kept, 1);
  }
  destroy(last);
  return delete one, cu::success;
}

}  // namespace

bool fake_has_called_out() { return called_out; }

void fake_call_out(const std::function<void()>& function) {
  called_out = true;
  function();
  called_out = false;
}

CuResult fake_exchange_capture_mode(int* mode) {
  std::swap(*mode, FakeCuda::State::capture_mode());
  return cu::success;
}

CuResult fake_stream_begin_capture(CuStream stream, int) {
  if (stream == nullptr) return cu::capture_unsupported;
  const std::lock_guard lock(fake->mutex);
  if (stream->capturing != nullptr) return cu::invalid_value;
  stream->capturing = new CuGraphBody;
  stream->capturing->id = ++fake->captures;
  fake->graphs.insert(stream->capturing);
  return cu::success;
}

CuResult fake_stream_end_capture(CuStream stream, CuGraph* graph) {
  CuGraph made = nullptr;
  {
    const std::lock_guard lock(fake->mutex);
    if (stream->capturing == nullptr) return cu::invalid_value;
    made = stream->capturing;
    made->capturing = false;
    for (CuStream other : fake->streams)
      if (other->capturing == made) other->capturing = nullptr;
    for (CuEvent event : fake->events)
      if (event->captured == made) event->captured = nullptr;
  }
  *graph = made->spoiled ? nullptr : made;
  if (!made->spoiled) return cu::success;
  (void)fake_graph_destroy(made);
  return cu::capture_spoiled;
}

CuResult fake_stream_capture_info(CuStream stream, int* status, std::uint64_t* id, CuGraph* graph,
                                  const CuGraphNode**, std::size_t*) {
  const std::lock_guard lock(fake->mutex);
  // It would have to wait for the streams that are captured, and wait for it.
  for (const CuStreamBody* other : fake->streams)
    if (stream == nullptr && other->blocking && other->capturing != nullptr)
      return cu::capture_implicit;
  const CuGraph into = fake->stream(stream).capturing;
  *status = into == nullptr ? cu::capture_none
            : into->spoiled ? cu::capture_invalidated
                            : cu::capture_active;
  if (into == nullptr) return cu::success;
  if (id != nullptr) *id = into->id;
  if (graph != nullptr) *graph = into;
  return cu::success;
}

CuResult fake_graph_instantiate(CuGraphRun* run, CuGraph graph, unsigned long long) {
  const std::lock_guard lock(fake->mutex);
  *run = new CuGraphRunBody{graph->items, graph->kept};
  for (CuUserObject object : graph->kept) ++object->references;
  fake->graph_runs.insert(*run);
  return cu::success;
}

CuResult fake_graph_launch(CuGraphRun run, CuStream stream) {
  for (const CuStreamBody::Item& item : run->items) fake->queue(stream, item);
  return cu::success;
}

CuResult fake_graph_destroy(CuGraph graph) { return destroy_one(fake->graphs, graph); }
CuResult fake_graph_run_destroy(CuGraphRun run) { return destroy_one(fake->graph_runs, run); }

CuResult fake_user_object_create(CuUserObject* object, void* body, void (*destroy)(void*),
                                 unsigned references, unsigned flags) {
  if (flags != cu::no_destructor_sync) return cu::invalid_value;
  const std::lock_guard lock(fake->mutex);
  *object = new CuUserObjectBody{body, destroy, references};
  fake->user_objects.insert(*object);
  return cu::success;
}

CuResult fake_user_object_release(CuUserObject object, unsigned count) {
  std::vector<CuUserObject> last;
  {
    const std::lock_guard lock(fake->mutex);
    last = let_go({object}, count);
  }
  destroy(last);
  return cu::success;
}

CuResult fake_graph_retain(CuGraph graph, CuUserObject object, unsigned count, unsigned flags) {
  if (flags != cu::graph_takes_reference || count != 1) return cu::invalid_value;
  const std::lock_guard lock(fake->mutex);
  graph->kept.push_back(object);
  return cu::success;
}

}  // namespace gyre::tests
