# Shared by the scripts: sourced, not run. Sets build and cores, and takes the options that all of them know.
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=${ATTUNE_BUILD_DIR:-build}
[[ $build = /* ]] || build=$PWD/$build
cores=$(nproc)

# Compiled files are kept between builds where ccache has a home to keep them in, else in the build folder.
launcher=()
if command -v ccache >/dev/null; then launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
if [ ! -w "${HOME:-/nonexistent}" ]; then export CCACHE_DIR=${CCACHE_DIR:-$build/.ccache}; fi

# The Python that apt installs, whatever else is first on PATH: python3-venv belongs to it.
system_python() { if [ -x /usr/bin/python3 ]; then /usr/bin/python3 "$@"; else python3 "$@"; fi; }

# configure_and_build [TARGET...]: reads the array configure_options.
configure_and_build() {
  cmake -S . -B "$build" -G Ninja "${launcher[@]}" "${configure_options[@]}" >"$build/configure.log" 2>&1 ||
    { cat "$build/configure.log"; echo "configuring failed (log: $build/configure.log)" >&2; return 1; }
  cmake --build "$build" --parallel "$cores" ${1:+--target "$@"}
}
