//! Authorities and certificates for services. They are in a directory whose files all change at once, as in a mounted
//! Secret.

use anyhow::Context;
use kube_api::{Access, Cluster, connect};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair};
use serde_json::json;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The directory of the present files, as in a mounted Secret.
const DATA: &str = "..data";

/// A certificate authority.
#[derive(Debug)]
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key in PEM.
#[derive(Clone, Debug)]
pub struct Signed {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    pub fn new(name: &str) -> anyhow::Result<Authority> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let signed = CertifiedIssuer::self_signed(params, KeyPair::generate()?);
        Ok(Authority(signed.context("signing the certificate of an authority")?))
    }

    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Issues a certificate for the user `name` in the group `ownergraph:tests`. The certificate also serves these
    /// hosts.
    pub fn sign(&self, name: &str, hosts: &[&str]) -> anyhow::Result<Signed> {
        self.sign_between(name, hosts, 2020, 4090)
    }

    /// Issues such a certificate, valid from the first day of the one year until the first day of the other.
    pub fn sign_between(&self, name: &str, hosts: &[&str], from: i32, until: i32) -> anyhow::Result<Signed> {
        let mut params = CertificateParams::new(hosts.iter().map(|&host| host.to_owned()).collect::<Vec<_>>())?;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "ownergraph:tests");
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = rcgen::date_time_ymd(from, 1, 1);
        params.not_after = rcgen::date_time_ymd(until, 1, 1);
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.0).context("signing a certificate")?;
        Ok(Signed { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

/// A mounted Secret with `tls.crt`, `tls.key` and `ca.crt`.
#[derive(Debug)]
pub struct Mounted {
    path: PathBuf,
    versions: usize,
}

impl Mounted {
    /// Mounts the Secret at `path`. The authorities are those that its holder trusts.
    pub fn new(path: PathBuf, signed: &Signed, authorities: &[&Authority]) -> anyhow::Result<Mounted> {
        fs::create_dir(&path).with_context(|| format!("creating {}", path.display()))?;
        let mut mounted = Mounted { path, versions: 0 };
        mounted.change(signed, authorities)?;
        for name in ["tls.crt", "tls.key", "ca.crt"] {
            symlink(Path::new(DATA).join(name), mounted.path.join(name))?;
        }
        Ok(mounted)
    }

    /// Replaces all files at once.
    pub fn change(&mut self, signed: &Signed, authorities: &[&Authority]) -> anyhow::Result<()> {
        self.versions += 1;
        let version = format!("..{}", self.versions);
        let directory = self.path.join(&version);
        fs::create_dir(&directory)?;
        fs::write(directory.join("tls.crt"), &signed.certificate)?;
        fs::write(directory.join("tls.key"), &signed.key)?;
        let bundle: String = authorities.iter().map(|authority| authority.pem()).collect();
        fs::write(directory.join("ca.crt"), bundle)?;
        let next = self.path.join("..next");
        symlink(&version, &next)?;
        fs::rename(&next, self.path.join(DATA)).with_context(|| format!("changing {}", self.path.display()))
    }

    /// Connects to a server at this address, with the certificate of the Secret or without one.
    pub async fn connect(&self, address: &str, shows_certificate: bool) -> anyhow::Result<Cluster> {
        let user = match shows_certificate {
            true => json!({ "client-certificate": self.file("tls.crt"), "client-key": self.file("tls.key") }),
            false => json!({}),
        };
        let cluster = json!({ "server": format!("https://{address}"), "certificate-authority": self.file("ca.crt") });
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "admin",
            "clusters": [{ "name": "admin", "cluster": cluster }],
            "users": [{ "name": "admin", "user": user }],
            "contexts": [{ "name": "admin", "context": { "cluster": "admin", "user": "admin" } }],
        });
        let file = tempfile::NamedTempFile::new()?;
        fs::write(file.path(), kubeconfig.to_string())?;
        Ok(connect(&Access { kubeconfig: Some(file.path().to_owned()), ..Access::default() }).await?)
    }

    /// Returns the path of one file.
    pub fn file(&self, name: &str) -> String {
        self.path.join(name).display().to_string()
    }
}
