//! Flags that override the kubeconfig, as in kubectl.

use std::fmt;
use std::path::PathBuf;

use kube::config::{AuthInfo, Context, Kubeconfig, NamedAuthInfo};

/// Each field is the kubectl flag of its name. `None` leaves the value of the kubeconfig.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    pub cluster: Option<String>,
    pub user: Option<String>,
    pub token: Option<String>,
    pub impersonate: Option<String>,
    pub impersonate_uid: Option<String>,
    pub impersonate_groups: Vec<String>,
    pub tls_server_name: Option<String>,
    pub certificate_authority: Option<PathBuf>,
    pub client_certificate: Option<PathBuf>,
    pub client_key: Option<PathBuf>,
    pub insecure_skip_tls_verify: bool,
}

impl fmt::Debug for Overrides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Credentials must never appear in a log.
        f.debug_struct("Overrides").field("cluster", &self.cluster).field("user", &self.user).finish_non_exhaustive()
    }
}

/// The name of the chosen user's credentials after the flags have changed them.
const OVERRIDDEN: &str = "given by flags";

impl Overrides {
    /// Changes the context of this name. Later checks report missing entries.
    pub(super) fn apply(&self, kubeconfig: &mut Kubeconfig, context: &str) {
        if *self == Overrides::default() {
            return;
        }
        let Some(chosen) = kubeconfig.contexts.iter_mut().find(|named| named.name == context) else { return };
        let Some(chosen) = chosen.context.as_mut() else { return };
        if let Some(cluster) = &self.cluster {
            chosen.cluster.clone_from(cluster);
        }
        if let Some(user) = &self.user {
            chosen.user = Some(user.clone());
        }
        let chosen = chosen.clone();
        self.change_cluster(kubeconfig, &chosen);
        if self.has_credentials() {
            self.change_user(kubeconfig, context, &chosen);
        }
    }

    fn change_cluster(&self, kubeconfig: &mut Kubeconfig, context: &Context) {
        let named = kubeconfig.clusters.iter_mut().find(|named| named.name == context.cluster);
        let Some(cluster) = named.and_then(|named| named.cluster.as_mut()) else { return };
        if let Some(path) = &self.certificate_authority {
            cluster.certificate_authority = Some(path.display().to_string());
            cluster.certificate_authority_data = None;
        }
        if let Some(name) = &self.tls_server_name {
            cluster.tls_server_name = Some(name.clone());
        }
        if self.insecure_skip_tls_verify {
            cluster.insecure_skip_tls_verify = Some(true);
            cluster.certificate_authority = None;
            cluster.certificate_authority_data = None;
        }
    }

    fn has_credentials(&self) -> bool {
        let given = [&self.token, &self.impersonate, &self.impersonate_uid];
        given.iter().any(|text| text.is_some())
            || !self.impersonate_groups.is_empty()
            || self.client_certificate.is_some()
            || self.client_key.is_some()
    }

    /// The credentials are changed in a copy: another context may share the original.
    fn change_user(&self, kubeconfig: &mut Kubeconfig, context: &str, chosen: &Context) {
        let original = kubeconfig.auth_infos.iter().find(|named| Some(&named.name) == chosen.user.as_ref());
        if original.is_none() && self.user.is_some() {
            return;
        }
        let mut user: AuthInfo = original.and_then(|named| named.auth_info.clone()).unwrap_or_default();
        if let Some(token) = &self.token {
            // A token takes precedence over all other credentials of this user.
            user.token = Some(token.clone().into());
            (user.token_file, user.exec, user.auth_provider) = (None, None, None);
        }
        if let Some(path) = &self.client_certificate {
            (user.client_certificate, user.client_certificate_data) = (Some(path.display().to_string()), None);
        }
        if let Some(path) = &self.client_key {
            (user.client_key, user.client_key_data) = (Some(path.display().to_string()), None);
        }
        if let Some(name) = &self.impersonate {
            user.impersonate = Some(name.clone());
        }
        if let Some(uid) = &self.impersonate_uid {
            user.impersonate_uid = Some(uid.clone());
        }
        if !self.impersonate_groups.is_empty() {
            user.impersonate_groups = Some(self.impersonate_groups.clone());
        }
        let auth_info = Some(user);
        kubeconfig.auth_infos.push(NamedAuthInfo { name: OVERRIDDEN.to_owned(), auth_info, ..Default::default() });
        if let Some(context) = kubeconfig.contexts.iter_mut().find(|named| named.name == context)
            && let Some(context) = context.context.as_mut()
        {
            context.user = Some(OVERRIDDEN.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubeconfig() -> Kubeconfig {
        Kubeconfig::from_yaml(
            "
clusters:
- {name: one, cluster: {server: 'https://one', certificate-authority: ca.pem}}
- {name: two, cluster: {server: 'https://two'}}
users:
- {name: ann, user: {tokenFile: /ann}}
- {name: bob, user: {token: bobs}}
contexts:
- {name: here, context: {cluster: one, user: ann, namespace: shop}}
- {name: there, context: {cluster: two, user: ann}}
",
        )
        .unwrap()
    }

    fn context<'k>(kubeconfig: &'k Kubeconfig, name: &str) -> &'k Context {
        kubeconfig.contexts.iter().find(|named| named.name == name).unwrap().context.as_ref().unwrap()
    }

    fn user(kubeconfig: &Kubeconfig, name: &str) -> AuthInfo {
        let named = context(kubeconfig, name).user.clone();
        kubeconfig.auth_infos.iter().find(|user| Some(&user.name) == named.as_ref()).unwrap().auth_info.clone().unwrap()
    }

    #[test]
    fn the_chosen_context_changes_and_no_other() {
        let mut changed = kubeconfig();
        let overrides = Overrides {
            cluster: Some("two".to_owned()),
            impersonate: Some("root".to_owned()),
            impersonate_groups: vec!["admins".to_owned()],
            token: Some("secret".to_owned()),
            insecure_skip_tls_verify: true,
            ..Overrides::default()
        };
        overrides.apply(&mut changed, "here");
        let here = context(&changed, "here");
        assert_eq!((here.cluster.as_str(), here.namespace.as_deref()), ("two", Some("shop")));
        let ann = user(&changed, "here");
        assert_eq!((ann.impersonate.as_deref(), ann.token_file), (Some("root"), None));
        assert!(ann.token.is_some());
        assert_eq!(user(&changed, "there").token_file.as_deref(), Some("/ann"));
        let two = changed.clusters[1].cluster.as_ref().unwrap();
        assert_eq!(two.insecure_skip_tls_verify, Some(true));
        assert!(!format!("{overrides:?}").contains("secret"));
    }

    #[test]
    fn nothing_given_changes_nothing() {
        let mut changed = kubeconfig();
        Overrides::default().apply(&mut changed, "here");
        assert_eq!((changed.auth_infos.len(), context(&changed, "here").user.as_deref()), (2, Some("ann")));
    }
}
