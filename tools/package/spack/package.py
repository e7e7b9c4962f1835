"""Spack's recipe for Gyre's libraries and programs. Unbuilt: nobody has run it yet."""

from spack.package import *


class Gyre(MesonPackage):
    """Collective communication between processes, threads and GPUs, with NCCL's API."""

    license("Apache-2.0")
    version("0.2.0")

    variant("cuda", default=False, description="Kernels for GPUs")
    variant("rdma", default=True, description="RDMA between hosts, by libibverbs")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("meson@1.0:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("cli11")
    depends_on("fmt@9:")
    depends_on("hwloc@2:")
    depends_on("nlohmann-json")
    depends_on("openssl@3:")
    depends_on("tinyxml2")
    depends_on("zlib-api")
    depends_on("cuda@12.8:", when="+cuda")
    depends_on("rdma-core", when="+rdma")

    conflicts("%gcc@:11", msg="Gyre is C++20: g++ 12 or clang 14")
    conflicts("%clang@:13", msg="Gyre is C++20: g++ 12 or clang 14")

    def meson_args(self):
        def feature(name):
            return "enabled" if self.spec.satisfies(f"+{name}") else "disabled"

        return ["-Dtests=false", "-Dhwloc=enabled", f"-Dcuda={feature('cuda')}",
                f"-Dverbs={feature('rdma')}"]
