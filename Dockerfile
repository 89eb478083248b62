# CPU:   docker build -t nmtkit .
# CUDA:  docker build -t nmtkit --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu130 .
# Demo:  docker run --rm -v "$PWD/runs:/home/runs" --user "$(id -u):$(id -g)" nmtkit
# GPUs:  add --gpus all --shm-size 8g
FROM python:3.11-slim-bookworm
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu

# A C compiler, with which torch compiles for GPUs.
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /src
COPY requirements.lock constraints.txt ./
RUN pip install --no-cache-dir --no-deps --require-hashes -r requirements.lock
RUN pip install --no-cache-dir --index-url "$TORCH_INDEX" --extra-index-url https://pypi.org/simple \
    -c constraints.txt torch
COPY . .
RUN pip install --no-cache-dir --no-deps --no-build-isolation .

# Any user may run it: what nmtkit writes is in /home/runs.
RUN chmod 1777 /home
WORKDIR /home
ENV HOME=/tmp
ENTRYPOINT ["nmtkit"]
CMD ["run", "demo"]
