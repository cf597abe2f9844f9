# The sluice binary, statically linked, on Alpine, run by an unprivileged user.
#
#   docker build -t sluice --build-arg VERSION=1.2.3 .
#   docker run --rm -p 127.0.0.1:8080:8080 sluice up --listen :8080          everything in one container, without persistent data
#
# docker-compose.yml uses the same image for backends and workers.

FROM --platform=$BUILDPLATFORM golang:1.26-alpine AS build
WORKDIR /src

# Modules change less often than code, so they have a layer of their own.
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download

COPY . .
ARG VERSION=dev
ARG TARGETOS
ARG TARGETARCH
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/cache \
    GOCACHE=/cache CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -pgo=cmd/sluice/release.pgo -ldflags "-s -w -X main.version=$VERSION" -o /out/sluice ./cmd/sluice && \
    install -d -m 700 /out/data

FROM alpine:3.22
LABEL org.opencontainers.image.title="sluice" org.opencontainers.image.licenses="Apache-2.0"

COPY --from=build /out/sluice /usr/local/bin/sluice
# Secrets and database of `sluice up`.
COPY --from=build --chown=10001:10001 /out/data /data
ENV SLUICE_DATA=/data

USER 10001:10001
WORKDIR /data
EXPOSE 8080 8081
STOPSIGNAL SIGTERM
# sluice health exits with 2 beside a command that it cannot check: a gateway, or a backend or worker that has its stores
# from flags. Such a container is healthy while it runs, unless it has a check of its own, for example of a gateway:
#
#   docker run --health-cmd "wget -q -O /dev/null http://127.0.0.1:8080/healthz" sluice gateway --listen :8080 ...
# A crash of sluice health, which also exits with 2, has another output.
HEALTHCHECK --interval=5s --timeout=5s --start-period=10s --retries=3 CMD out=$(sluice health 2>&1); code=$?; echo "$out"; \
    case "$code $out" in "0 "*|"2 sluice: "*) ;; *) false ;; esac
ENTRYPOINT ["sluice"]
CMD ["--help"]
