# syntax=docker/dockerfile:1
# Needs PyPI and Debian packages only: the server binary comes from a wheel. The steps are the scripts that
# `make` uses too.
#   docker build -t aoti-pack .                      a slim image that serves /models
#   docker build --target backend -t backend .       NVIDIA's tritonserver image with our backend in it
ARG TRITON_IMAGE=nvcr.io/nvidia/tritonserver:25.10-py3

# What an installation is made of, once for both builds.
FROM scratch AS sources
COPY pyproject.toml README.md CMakeLists.txt ./
COPY aoti_pack aoti_pack
COPY cpp cpp

FROM python:3.11-slim-bookworm AS build
WORKDIR /opt/aoti-pack
COPY scripts scripts
RUN scripts/system.sh
COPY --from=sources / ./
ENV VENV=/opt/venv AOTI_PACK_HOME=/opt/cache PATH=/opt/venv/bin:$PATH
ARG TORCH=torch==2.13.0
RUN TORCH=$TORCH scripts/install.sh serve
RUN aoti-pack server install && aoti-pack build-backend

# Built inside NVIDIA's image, against its own headers; the backend's torch lies in /opt/venv, where its rpath points.
FROM ${TRITON_IMAGE} AS backend
WORKDIR /opt/aoti-pack
COPY scripts scripts
RUN scripts/system.sh
COPY --from=sources / ./
ENV VENV=/opt/venv AOTI_PACK_HOME=/opt/cache
ARG TORCH=torch==2.13.0
RUN TORCH=$TORCH scripts/install.sh serve \
    && mkdir -p /backends \
    && cp -r "$(dirname "$(/opt/venv/bin/aoti-pack build-backend)")" /backends/aoti \
    && ln -s /backends/aoti /opt/tritonserver/backends/aoti

FROM python:3.11-slim-bookworm AS serve
# libgomp serves the compiled models; the compiler stays behind in the build stage.
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends libgomp1 && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt /opt
ENV VENV=/opt/venv AOTI_PACK_HOME=/opt/cache PATH=/opt/venv/bin:$PATH
EXPOSE 8000 8001 8002
ENTRYPOINT ["aoti-pack", "serve", "--host", "0.0.0.0"]
CMD ["/models"]
