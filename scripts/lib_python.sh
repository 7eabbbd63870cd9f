# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
# Sourced by setup, after lib.sh: which Python, its environment in .venv, and the packages in that.

can_make_venv() {
  "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 9))' 2>/dev/null ||
    "$1" -c 'import sys, virtualenv; sys.exit(sys.version_info < (3, 9))' 2>/dev/null
}

holds_torch() { "$1" -c 'import sys, torch; sys.exit(not torch.version.cuda)' 2>/dev/null; }

# Prints the Python to build .venv from: with a GPU the first that holds a torch for it, else the first.
find_python() {
  local name candidate first=
  for name in ${PYTHON:-python3 /usr/bin/python3 python3.14 python3.13 python3.12 python3.11 python3.10}; do
    candidate=$(PATH=$outer_path command -v "$name") || continue
    if [[ $candidate == "$venv"/* ]] || ! can_make_venv "$candidate"; then continue; fi
    first=${first:-$candidate}
    has_gpu || break
    if holds_torch "$candidate"; then
      first=$candidate
      break
    fi
  done
  [[ -n $first ]] && printf '%s\n' "$first"
}

outer_packages() {
  "$python" -c 'import sysconfig; print(sysconfig.get_path("purelib") + "/outer_packages.pth")'
}

# Lets .venv see the packages of the Python it is made from. (venv's own --system-site-packages looks
# past a Python that is itself in an environment.)
share_packages() {
  "$1" >"$(outer_packages)" - <<'PY'
import os, site
for folder in filter(os.path.isdir, site.getsitepackages() + [site.getusersitepackages()]):
    print(f"import site; site.addsitedir({folder!r})")
PY
}

# make_venv <python>
make_venv() {
  say "making .venv with $1"
  rm -rf "$venv" build/python
  logged build/venv.log "$1" -m venv "$venv" || logged build/venv.log "$1" -m virtualenv "$venv" ||
    die "$1 cannot make a virtual environment. Run: sudo apt-get install -y python3-venv   then this again"
  if has_gpu && holds_torch "$1"; then
    share_packages "$1"
  fi
}

pip_install() { logged build/pip.log "$python" -m pip install "$@"; }

# install_requirements <python>: pip asks no index for what is there already, so this works offline
# where the outer Python has everything.
install_requirements() {
  say "installing Python packages: $(grep -v '^#' scripts/requirements.txt | tr '\n' ' ')"
  if ! pip_install -r scripts/requirements.txt; then
    say "pip could not install all of them; trying with the packages of $1"
    share_packages "$1"
    if ! pip_install -r scripts/requirements.txt; then
      rm -f "$(outer_packages)"
      die "Python packages are missing, see above"
    fi
  fi
  pip_install 'nvidia-cuda-nvrtc>=13.0,<14' ||
    say "going on without the nvidia-cuda-nvrtc package: compiling kernels needs another libnvrtc"
  if has_gpu && ! holds_torch "$python"; then
    say "installing torch, since there is a GPU (this takes minutes)"
    pip_install torch || say "going on without torch: GPU tests of the Python package need it"
  fi
}
