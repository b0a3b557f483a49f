//! `--server https://…`: a proxy that adds TLS stands before the server, with a certificate of its own.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::{Stage, json, summarizer};
use crate::support::server::{Launch, Output};

/// For 127.0.0.1, by nobody, until 2120. The key is no secret.
fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/integration/cli/tls").join(name)
}

/// Ends TLS before `server`; gives its address.
async fn proxy(server: SocketAddr) -> SocketAddr {
    let certificate = CertificateDer::from_pem_file(file("certificate.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(file("key.pem")).unwrap();
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(ring)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    // It ends with the test's runtime.
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut outer) = acceptor.accept(stream).await else { return };
                let Ok(mut inner) = TcpStream::connect(server).await else { return };
                tokio::io::copy_bidirectional(&mut outer, &mut inner).await.ok();
            });
        }
    });
    address
}

async fn trusting(trusted: &str, server: &str, line: &str) -> Output {
    let launch = Launch::cardfence(line.split_whitespace()).env("CARDFENCE_SERVER", server);
    // Whatever this program's environment names is no part of it.
    launch.env("SSL_CERT_DIR", "").env("SSL_CERT_FILE", file(trusted).to_str().unwrap()).output().await
}

#[tokio::test]
async fn https_is_spoken_to_servers_whose_certificate_is_trusted() {
    let stage = Stage::set().await;
    stage.register("acme/sum", &summarizer()).await;
    let port = proxy(stage.server.address()).await.port();
    let trusted = format!("https://127.0.0.1:{port}");
    let output = trusting("certificate.pem", &trusted, "resolve acme/sum --json").await;
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert_eq!(json(&output)["agent"], "acme/sum");
    let output = trusting("certificate.pem", &trusted, "resolve acme/none").await;
    assert_eq!(output.code, Some(4), "{}", output.stderr);

    // The certificate is for another name.
    let other = format!("https://localhost:{port}");
    let output = trusting("certificate.pem", &other, "resolve acme/sum").await;
    assert_eq!((output.code, output.stdout.as_str()), (Some(5), ""), "{}", output.stderr);
    let told = format!("no answer from {other}: invalid peer certificate");
    assert!(output.stderr.contains(&told), "{}", output.stderr);
}

#[tokio::test]
async fn https_that_cannot_be_spoken_is_told_with_its_reason() {
    let output = trusting("certificate.pem", "https://127.0.0.1:1", "list").await;
    assert_eq!((output.code, output.stdout.as_str()), (Some(5), ""));
    let told = "no answer from https://127.0.0.1:1: Connection refused";
    assert!(output.stderr.contains(told), "{}", output.stderr);
    // A file without a certificate: nobody could be trusted.
    let output = trusting("key.pem", "https://127.0.0.1:1", "list").await;
    assert_eq!((output.code, output.stdout.as_str()), (Some(1), ""));
    assert!(output.stderr.contains("SSL_CERT_FILE"), "{}", output.stderr);
    // Where it is not used, nothing is asked of the host.
    let stage = Stage::set().await;
    let output = trusting("key.pem", &stage.server.url(), "list").await;
    assert_eq!(output.code, Some(0), "{}", output.stderr);
}
