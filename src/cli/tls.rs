//! Which servers the command line trusts behind `https`: those that the host trusts.
//!
//! The certificates are the host's, or those that `SSL_CERT_FILE` or `SSL_CERT_DIR` name, as for other programs. The
//! cryptography is ring's, which is in the program already for PostgreSQL: left alone, the HTTP client would
//! bring another.

use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};

use super::failure::{Failure, failed};

/// What a client of a server at `https` (or at `http`, where it is not used) is built with.
///
/// # Errors
/// When the host has no certificates that could be trusted.
pub(super) fn config(https: bool) -> Result<ClientConfig, Failure> {
    let trusted = if https { trusted()? } else { RootCertStore::empty() };
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let versions = ClientConfig::builder_with_provider(ring).with_safe_default_protocol_versions();
    let versions = versions.map_err(|error| failed(format!("TLS cannot be used: {error}")))?;
    let mut config = versions.with_root_certificates(trusted).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn trusted() -> Result<RootCertStore, Failure> {
    let found = rustls_native_certs::load_native_certs();
    let mut trusted = RootCertStore::empty();
    // Hosts carry some that cannot be read; they are as good as absent.
    let (usable, _) = trusted.add_parsable_certificates(found.certs);
    if usable > 0 {
        return Ok(trusted);
    }
    let why = found.errors.first().map_or_else(|| "none was found".to_owned(), ToString::to_string);
    Err(failed(format!(
        "https needs certificates to trust, and this host has none ({why}): SSL_CERT_FILE names a file of them"
    )))
}
