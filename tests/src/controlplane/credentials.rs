//! The keys, certificates, tokens and kubeconfigs of one control plane. Each control plane has new ones.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::json;
use uuid::Uuid;

/// A member of `system:masters`. RBAC permits it everything.
pub const ADMIN: &str = "admin";

/// A user that can authenticate. The test grants its rights with RBAC.
#[derive(Debug, Clone)]
pub struct User {
    pub name: String,
    pub groups: Vec<String>,
}

impl User {
    /// A user in no other groups than those of every authenticated user.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), groups: Vec::new() }
    }
}

/// The files for servers and clients, all in one directory.
#[derive(Debug)]
pub(super) struct Credentials {
    directory: PathBuf,
    ca: String,
    tokens: Vec<(User, String)>,
}

impl Credentials {
    /// Creates and writes all files except the kubeconfigs, which need the server's address. With `serves_authority`,
    /// the server shows the certificate of the authority itself.
    pub(super) fn create(directory: &Path, users: Vec<User>, serves_authority: bool) -> anyhow::Result<Self> {
        let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
        let mut ca = CertificateParams::new(names.clone())?;
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate()?).context("signing the CA certificate")?;
        let serving_key = KeyPair::generate()?;
        let serving =
            CertificateParams::new(names)?.signed_by(&serving_key, &ca).context("signing the serving certificate")?;
        let (serving, serving_key) = match serves_authority {
            true => (ca.pem(), ca.key().serialize_pem()),
            false => (serving.pem(), serving_key.serialize_pem()),
        };
        let service_account_key = KeyPair::generate()?;

        let tokens = users.into_iter().map(|user| (user, Uuid::new_v4().simple().to_string())).collect();
        let credentials = Self { directory: directory.to_owned(), ca: ca.pem(), tokens };
        write(&credentials.ca_file(), &credentials.ca)?;
        write(&credentials.serving_certificate_file(), &serving)?;
        write(&credentials.serving_key_file(), &serving_key)?;
        write(&credentials.service_account_key_file(), &service_account_key.serialize_pem())?;
        write(&credentials.service_account_public_key_file(), &service_account_key.public_key_pem())?;
        write(&credentials.token_file(), &credentials.token_lines())?;
        Ok(credentials)
    }

    /// Returns the same keys, certificates and tokens in another directory.
    pub(super) fn copy_to(&self, directory: &Path) -> anyhow::Result<Self> {
        let copy = Self { directory: directory.to_owned(), ca: self.ca.clone(), tokens: self.tokens.clone() };
        let files: [fn(&Self) -> PathBuf; 6] = [
            Self::ca_file,
            Self::serving_certificate_file,
            Self::serving_key_file,
            Self::service_account_key_file,
            Self::service_account_public_key_file,
            Self::token_file,
        ];
        for file in files {
            fs::copy(file(self), file(&copy)).with_context(|| format!("copying {}", file(self).display()))?;
        }
        Ok(copy)
    }

    /// Writes a kubeconfig for each user. JSON is also YAML.
    pub(super) fn write_kubeconfigs(&self, url: &str) -> anyhow::Result<()> {
        for (user, token) in &self.tokens {
            let kubeconfig = json!({
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "controlplane",
                "clusters": [{"name": "controlplane", "cluster": {"server": url, "certificate-authority": self.ca_file()}}],
                "users": [{"name": user.name, "user": {"token": token}}],
                "contexts": [{"name": "controlplane", "context": {"cluster": "controlplane", "user": user.name}}],
            });
            write(&self.kubeconfig_file(&user.name), &format!("{kubeconfig:#}\n"))?;
        }
        Ok(())
    }

    pub(super) fn ca(&self) -> &str {
        &self.ca
    }

    pub(super) fn token(&self, user: &str) -> Option<&str> {
        self.tokens.iter().find(|(other, _)| other.name == user).map(|(_, token)| token.as_str())
    }

    pub(super) fn ca_file(&self) -> PathBuf {
        self.directory.join("ca.crt")
    }

    pub(super) fn serving_certificate_file(&self) -> PathBuf {
        self.directory.join("serving.crt")
    }

    pub(super) fn serving_key_file(&self) -> PathBuf {
        self.directory.join("serving.key")
    }

    pub(super) fn service_account_key_file(&self) -> PathBuf {
        self.directory.join("service-account.key")
    }

    pub(super) fn service_account_public_key_file(&self) -> PathBuf {
        self.directory.join("service-account.pub")
    }

    pub(super) fn token_file(&self) -> PathBuf {
        self.directory.join("tokens.csv")
    }

    pub(super) fn kubeconfig_file(&self, user: &str) -> PathBuf {
        self.directory.join(format!("{user}.kubeconfig"))
    }

    /// Returns `token,user,uid,"group,group"`, the format of `--token-auth-file`.
    fn token_lines(&self) -> String {
        let line =
            |(user, token): &(User, String)| format!("{token},{0},{0},\"{1}\"\n", user.name, user.groups.join(","));
        self.tokens.iter().map(line).collect()
    }
}

fn write(file: &Path, content: &str) -> anyhow::Result<()> {
    fs::write(file, content).with_context(|| format!("writing {}", file.display()))
}
