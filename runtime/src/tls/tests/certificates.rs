//! Authorities, certificates and their files.

use crate::tls::{BadTls, Caller, CallerFlags, ServerFlags, ServerTls};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

/// An authority.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate to be signed.
pub(crate) struct Leaf(CertificateParams);

/// A certificate and its key, as PEM.
pub(crate) struct Signed {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(crate) fn leaf(&self, leaf: Leaf) -> Signed {
        let key = KeyPair::generate().unwrap();
        Signed { certificate: leaf.0.signed_by(&key, &self.0).unwrap().pem(), key: key.serialize_pem() }
    }
}

impl Leaf {
    pub(crate) fn server(host: &str) -> Leaf {
        Leaf(CertificateParams::new([host.to_owned()]).unwrap())
    }

    pub(crate) fn client(user: &str, group: &str) -> Leaf {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, group);
        params.distinguished_name.push(DnType::CommonName, user);
        Leaf(params)
    }

    /// Valid from and until the first day of these years.
    pub(crate) fn between(mut self, from: i32, until: i32) -> Leaf {
        self.0.not_before = rcgen::date_time_ymd(from, 1, 1);
        self.0.not_after = rcgen::date_time_ymd(until, 1, 1);
        self
    }
}

/// A directory.
pub(crate) struct Files(TempDir);

impl Files {
    pub(crate) fn new() -> Files {
        Files(TempDir::new().unwrap())
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn server_flags(&self, authority: &Authority, signed: &Signed) -> ServerFlags {
        ServerFlags {
            tls_cert: Some(self.write("server.crt", &signed.certificate)),
            tls_key: Some(self.write("server.key", &signed.key)),
            client_ca: Some(self.write("client-ca.crt", &authority.pem())),
        }
    }

    pub(crate) async fn serve(&self, authority: &Authority, signed: &Signed) -> Result<Arc<ServerTls>, BadTls> {
        let opened = ServerTls::open(&self.server_flags(authority, signed)).await?;
        Ok(opened.expect("the flags ask for TLS"))
    }

    pub(crate) fn caller_flags(&self, authority: &Authority, signed: Option<&Signed>) -> CallerFlags {
        CallerFlags {
            tls_ca: Some(self.write("server-ca.crt", &authority.pem())),
            tls_cert: signed.map(|signed| self.write("client.crt", &signed.certificate)),
            tls_key: signed.map(|signed| self.write("client.key", &signed.key)),
            token_file: None,
        }
    }

    pub(crate) async fn call(&self, authority: &Authority, signed: Option<&Signed>) -> Result<Caller, BadTls> {
        Caller::open(&self.caller_flags(authority, signed), true, ("--tls-server-name", None)).await
    }
}
