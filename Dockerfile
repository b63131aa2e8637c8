# mdgan with PyTorch's builds for CPUs.
#
#   docker build -t mdgan .
#   docker run --rm -v "$PWD/runs:/home/mdgan/runs" --user "$(id -u):$(id -g)" mdgan train --iterations 300
#
# For GPUs: --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu128, and `docker run --gpus all`.
# compose.yaml beside this file starts a server and two workers; deploy/kubernetes/ is for clusters.
#
# Tried with podman on a Debian with Python 3.11 instead of BASE: it was built with PyPI's index instead
# of TORCH_INDEX, and a server and two workers trained in three containers (version 0.7.0 before its links
# were gRPC). Neither the image that BASE names nor GPUs were tried. Its digest is the one by which
# public projects named python:3.12-slim in September 2026 (Python 3.12.14, any processor). For newer
# fixes give another: docker buildx imagetools inspect python:3.12-slim --format '{{.Manifest.Digest}}'
ARG BASE=docker.io/library/python:3.12-slim@sha256:78387bc3881b8273120a12ebe6c1ab22b018ccc2c9adf565ae1ac9b536e184ea
FROM ${BASE}

# Those for CPUs have a fifth of the size of PyPI's, which are for GPUs.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ENV PATH=/opt/mdgan/bin:$PATH PYTHONUNBUFFERED=1
WORKDIR /src
COPY constraints.txt ./
RUN python3 -m venv /opt/mdgan \
    && pip install --no-cache-dir --constraint constraints.txt --no-deps --index-url "${TORCH_INDEX}" \
        torch torchvision

COPY pyproject.toml README.md LICENSE ./
COPY mdgan mdgan
COPY datasets datasets
RUN pip install --no-cache-dir --constraint constraints.txt '.[plots]'

# Any user may run it: what it writes lies in volumes, or in /tmp.
RUN useradd --create-home --uid 1000 mdgan
ENV HOME=/home/mdgan MPLCONFIGDIR=/tmp/matplotlib XDG_CACHE_HOME=/tmp/cache
USER 1000:1000
WORKDIR /home/mdgan
ENTRYPOINT ["mdgan"]
CMD ["--help"]
