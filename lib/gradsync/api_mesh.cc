// The C functions of meshes.
#include "lib/gradsync/gradsync_api.h"

namespace gyre::gradsync {
namespace {

Status create(gyreMesh_t* mesh, gyreComm_t comm, const gyreMeshAxis_t axes[], std::size_t count) {
  if (mesh == nullptr) return invalid_argument("mesh is NULL");
  *mesh = nullptr;
  if (axes == nullptr || count == 0 || count > Mesh::max_axes)
    return invalid_argument(
        fmt::format("axes: a mesh has 1 to {} of them, not {}", Mesh::max_axes, count));
  GYRE_TRY(check_communicator(comm));
  std::vector<MeshAxis> list;
  for (std::size_t i = 0; i < count; ++i)
    list.push_back({axes[i].name == nullptr ? "" : axes[i].name, axes[i].size});
  GYRE_ASSIGN(auto made, Mesh::create(comm, std::move(list)));
  return keep(handles().meshes, std::move(made), mesh, "meshes");
}

template <typename Body>
gyreResult_t on(gyreMesh_t mesh, const char* function, const Body& body) {
  return gradsync::on(handles().meshes, mesh, "the mesh", function, body);
}

Status get_line(Mesh& mesh, std::span<const char* const> names, gyreComm_t* comm) {
  if (comm == nullptr) return invalid_argument("comm is NULL");
  GYRE_ASSIGN(*comm, mesh.line(names));
  return {};
}

}  // namespace
}  // namespace gyre::gradsync

using namespace gyre;
using namespace gyre::gradsync;

gyreResult_t gyreMeshCreate(gyreMesh_t* mesh, gyreComm_t comm, const gyreMeshAxis_t axes[],
                            size_t count) {
  return guarded([&] { return create(mesh, comm, axes, count).while_doing("gyreMeshCreate"); });
}

gyreResult_t gyreMeshDestroy(gyreMesh_t mesh) {
  return destroy(handles().meshes, mesh, "the mesh");
}

gyreResult_t gyreMeshComm(gyreMesh_t mesh, const char* axis, gyreComm_t* comm) {
  return on(mesh, "gyreMeshComm", [&](Mesh& found) { return get_line(found, {&axis, 1}, comm); });
}

gyreResult_t gyreMeshCommOf(gyreMesh_t mesh, const char* const axes[], size_t count,
                            gyreComm_t* comm) {
  return on(mesh, "gyreMeshCommOf", [&](Mesh& found) -> Status {
    if (axes == nullptr || count == 0) return invalid_argument("axes: at least one is needed");
    return get_line(found, {axes, count}, comm);
  });
}

gyreResult_t gyreMeshPlace(gyreMesh_t mesh, const char* axis, int* place, int* size) {
  return on(mesh, "gyreMeshPlace", [&](Mesh& found) -> Status {
    GYRE_ASSIGN(const std::size_t index, found.axis(axis));
    if (place != nullptr) *place = found.place(index);
    if (size != nullptr) *size = found.size(index);
    return {};
  });
}

gyreResult_t gyreMeshRank(gyreMesh_t mesh, const int places[], int* rank) {
  return on(mesh, "gyreMeshRank", [&](Mesh& found) -> Status {
    if (places == nullptr || rank == nullptr) return invalid_argument("places or rank is NULL");
    GYRE_ASSIGN(*rank, found.rank_at(places));
    return {};
  });
}
