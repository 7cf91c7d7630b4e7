# syntax=docker/dockerfile:1
#
#   docker build -t sonorant .                    for CUDA: the wheels contain the CUDA libraries; the host has the driver
#   docker build -t sonorant:cpu --target cpu .   for CPU; --build-arg TORCH_INDEX_URL=<PyTorch's CPU wheel index> keeps
#                                                 the CUDA libraries out of the image. For 64-bit Arm PyPI has a wheel
#                                                 without them: --platform linux/arm64 --build-arg TORCH=torch==2.10.0
#   docker run --gpus all -p 50051:50051 -v /path/to/checkpoint:/models:ro -v kernels:/home/sonorant/.triton \
#     sonorant --model /models
#
# With TLS: --env SONORANT_CLIENT_CA=/path/in/it.pem --health-cmd 'sonorant health --server NAME.OF.THE.CERTIFICATE:50051'
# Without --model, the checkpoint in the package is served. The volume begins with the image's kernels, and keeps those
# that a start compiles.

FROM python:3.11-slim-bookworm AS base
ENV PATH=/opt/sonorant/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1

FROM base AS build
ENV PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1
# gcc, for the C code that runs small models, such as those in the package, on the CPU.
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
RUN python -m venv /opt/sonorant
WORKDIR /src
COPY constraints.txt .

# Both remove the parts of torch that only serve builds and tests, and fail if the C code was not compiled.
FROM build AS build-cuda
ARG TORCH=torch==2.13.0
RUN pip install "${TORCH}"
COPY . .
RUN pip install --constraint constraints.txt ./clients '.[opus,channelz,otel,postgres,gateway]'
RUN cd /opt/sonorant/lib/python3.*/site-packages && rm -rf torch/include torch/test && find . -name '*.a' -delete \
    && find torch/bin -mindepth 1 ! -name torch_shm_manager -delete \
    && python -c 'from sonorant.engine.cpu.library import library; assert library(), "the functions in C are missing"'

FROM build AS build-cpu
ARG TORCH=torch==2.13.0
ARG TORCH_INDEX_URL
RUN pip install ${TORCH_INDEX_URL:+--index-url "${TORCH_INDEX_URL}"} "${TORCH}"
COPY . .
RUN pip install --constraint constraints.txt ./clients '.[opus,channelz,otel,postgres,gateway]'
RUN cd /opt/sonorant/lib/python3.*/site-packages && rm -rf torch/include torch/test && find . -name '*.a' -delete \
    && find torch/bin -mindepth 1 ! -name torch_shm_manager -delete \
    && python -c 'from sonorant.engine.cpu.library import library; assert library(), "the functions in C are missing"'

FROM base AS runtime
RUN useradd --uid 10001 --create-home --shell /usr/sbin/nologin sonorant \
    && install -d -o sonorant -g sonorant /home/sonorant/.triton
USER 10001:10001
WORKDIR /home/sonorant
EXPOSE 50051
STOPSIGNAL SIGTERM
# The stock health service says SERVING once the model has spoken its warm-up utterance.
HEALTHCHECK --interval=10s --timeout=5s --start-period=10m CMD ["sonorant", "health"]
ENTRYPOINT ["sonorant-server", "--listen", "0.0.0.0:50051"]

FROM runtime AS cpu
COPY --from=build-cpu /opt/sonorant /opt/sonorant

FROM runtime AS cuda
# "compute" provides CUDA and the programs of MPS, with which talker and codec share a GPU; both come from the host's driver.
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
# When the server starts, Triton compiles its launchers in C, which needs the headers of Python and the driver's library.
USER 0
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/* \
    && python -c 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")'
USER 10001:10001
COPY --from=build-cuda /opt/sonorant /opt/sonorant
# Compiled kernels of a 1.7B checkpoint, so that the first start on such a card need not wait for them; half a minute of
# eight cores for each. Compute capabilities; none with --build-arg CARDS=
ARG CARDS="8.0 8.6 8.9 9.0 10.0 12.0"
RUN for card in ${CARDS}; do python -m sonorant.engine.tools.kernels --card "$card" || exit 1; done
VOLUME /home/sonorant/.triton
