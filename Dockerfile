# A small image with the one binary, run by a user who owns nothing but the ledger's folder.
#
#   docker build --tag cardfence .
#   docker run --publish 127.0.0.1:7878:7878 --volume ledger:/var/lib/cardfence cardfence \
#       serve --listen 0.0.0.0:7878 --insecure --store sqlite:/var/lib/cardfence/ledger.db
#
# `--insecure` is said by whoever starts it, not by the image: a server without credentials that listens on
# more than loopback is somebody's decision, and `--publish 127.0.0.1:…` is what keeps it on this machine.

FROM rust:1-slim-bookworm AS build
WORKDIR /src
COPY . .
# The mounts keep the registry and the compiled dependencies from one build to the next.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --bin cardfence \
    && cp target/release/cardfence /usr/local/bin/cardfence

FROM debian:bookworm-slim
# The certificates are for a PostgreSQL server that is reached with `sslmode=verify-full`.
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates && rm -rf /var/lib/apt/lists/*
RUN useradd --system --uid 10001 --home-dir /var/lib/cardfence --create-home --shell /usr/sbin/nologin cardfence
COPY --from=build /usr/local/bin/cardfence /usr/local/bin/cardfence
COPY LICENSE-MIT LICENSE-APACHE /usr/share/doc/cardfence/
USER 10001:10001
WORKDIR /var/lib/cardfence
VOLUME /var/lib/cardfence
EXPOSE 7878
# Ready, not only alive: a node that has never proven what it serves gets no traffic. bash speaks TCP, so the
# image carries no HTTP client for this one line.
HEALTHCHECK --interval=5s --timeout=3s --start-period=60s --retries=3 CMD ["bash", "-c", \
    "exec 3<>/dev/tcp/127.0.0.1/7878 && printf 'GET /readyz HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n' >&3 && read -r _ status _ <&3 && [ \"$status\" = 200 ]"]
ENTRYPOINT ["cardfence"]
CMD ["serve", "--listen", "0.0.0.0:7878", "--store", "sqlite:/var/lib/cardfence/ledger.db"]
