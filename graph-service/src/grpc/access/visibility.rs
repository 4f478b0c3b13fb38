//! The objects that the caller of one call may see, by namespace.

use super::caller::Caller;
use super::reviews::Asked;
use super::{Authenticator, status};
use crate::grpc::rights::Right;
use engine::object::ObjectRef;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tonic::Status;

/// Maximum number of namespaces of one call. A call names its namespaces, and few references leave them.
const NAMESPACES_MAX: usize = 1000;

/// The objects that the caller of a call may see. If callers are not authenticated, they see everything.
#[derive(Clone, Debug, Default)]
pub(in crate::grpc) struct Visibility(Option<Arc<Limited>>);

#[derive(Debug)]
struct Limited {
    authenticator: Arc<Authenticator>,
    caller: Arc<Caller>,
    right: Right,
    known: Mutex<Known>,
}

/// The rights that are known so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Known {
    /// The right for all namespaces.
    everywhere: Option<bool>,
    namespaces: BTreeMap<String, bool>,
    /// Required rights: if one of them is lost, the call fails. The empty namespace stands for all.
    required: BTreeSet<String>,
    /// The name of the required virtual object.
    named: Option<String>,
    /// The number of rights that were found changed.
    changes: u64,
}

impl Known {
    fn sees(&self, namespace: &str) -> bool {
        self.everywhere == Some(true) || self.namespaces.get(namespace) == Some(&true)
    }
}

impl Visibility {
    /// The user, if callers are authenticated.
    pub(in crate::grpc) fn user(&self) -> Option<&str> {
        self.0.as_ref().map(|limited| limited.caller.user.as_str())
    }

    pub(super) fn of(authenticator: Arc<Authenticator>, caller: Arc<Caller>, right: Right) -> Visibility {
        Visibility(Some(Arc::new(Limited { authenticator, caller, right, known: Mutex::default() })))
    }

    /// The owner of state that is kept for one caller. `None` if callers are not authenticated.
    pub(in crate::grpc) fn whose(&self) -> Option<Whose> {
        let Limited { caller, .. } = self.0.as_deref()?;
        Some(Whose { user: caller.user.clone(), uid: caller.uid.clone() })
    }

    /// Whether an object of this namespace is visible; empty for cluster scope. Namespaces that were not asked about
    /// are hidden.
    pub(in crate::grpc) fn sees(&self, namespace: &str) -> bool {
        self.0.as_ref().is_none_or(|limited| limited.known().sees(namespace))
    }

    /// Whether everything is visible, according to the answers so far.
    pub(in crate::grpc) fn sees_everything(&self) -> bool {
        self.0.as_ref().is_none_or(|limited| limited.known().everywhere == Some(true))
    }

    /// Asks about these namespaces, for [`Visibility::sees`].
    pub(in crate::grpc) async fn learn(
        &self,
        namespaces: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<(), Status> {
        let Some(limited) = &self.0 else { return Ok(()) };
        if limited.everywhere().await? {
            return Ok(());
        }
        // Cluster scope needs the right for all namespaces.
        let mut unknown: BTreeSet<String> = {
            let known = limited.known();
            let is_unknown = |name: &&str| !name.is_empty() && !known.namespaces.contains_key(*name);
            let names: Vec<_> = namespaces.into_iter().collect();
            names.iter().map(AsRef::as_ref).filter(is_unknown).map(str::to_owned).collect()
        };
        if limited.known().namespaces.len() + unknown.len() > NAMESPACES_MAX {
            return Err(status::limit_exceeded("namespaces of one call", NAMESPACES_MAX));
        }
        while let Some(namespace) = unknown.pop_first() {
            limited.ask(&namespace).await?;
        }
        Ok(())
    }

    /// Returns an error unless this namespace is visible; empty stands for all.
    pub(in crate::grpc) async fn require(&self, namespace: &str) -> Result<(), Status> {
        let Some(limited) = &self.0 else { return Ok(()) };
        self.learn([namespace]).await?;
        limited.known().required.insert(namespace.to_owned());
        if self.sees(namespace) { Ok(()) } else { Err(limited.denied(namespace)) }
    }

    /// Returns an error unless the caller has the right for this virtual object.
    pub(in crate::grpc) async fn require_object(&self, name: &str) -> Result<(), Status> {
        let Some(limited) = &self.0 else { return Ok(()) };
        limited.known().named = Some(name.to_owned());
        limited.check_named(name).await
    }

    /// For a call without an object. Returns an error unless the caller has the right for all namespaces, or each
    /// filter names namespaces that the caller may see.
    pub(in crate::grpc) async fn require_named<'a>(
        &self,
        filters: impl IntoIterator<Item = &'a [String]>,
    ) -> Result<(), Status> {
        let Some(limited) = &self.0 else { return Ok(()) };
        if limited.everywhere().await? {
            limited.known().required.insert(String::new());
            return Ok(());
        }
        let mut filters = filters.into_iter().peekable();
        if filters.peek().is_none() {
            return Err(limited.denied(""));
        }
        for namespaces in filters {
            if namespaces.is_empty() {
                return Err(limited.denied(""));
            }
            self.learn(namespaces).await?;
            for namespace in namespaces {
                self.require(namespace).await?;
            }
        }
        Ok(())
    }

    /// Returns an error unless the caller may get this object from the API server.
    pub(in crate::grpc) async fn require_to_get(&self, object: &ObjectRef) -> Result<(), Status> {
        let Some(limited) = &self.0 else { return Ok(()) };
        let [group, resource, namespace, name] =
            [&object.group, &object.resource, &object.namespace, &object.name].map(ToString::to_string);
        let denied = status::object_denied(&limited.caller.user, &group, &resource, &namespace);
        let asked = Asked::Object { group, resource, namespace, name };
        if limited.authenticator.may(&limited.caller, asked).await? { Ok(()) } else { Err(denied) }
    }

    /// The error for an object that is absent or hidden. It does not say which.
    pub(in crate::grpc) fn hidden(&self, not_found: impl FnOnce() -> Status) -> Status {
        match &self.0 {
            Some(limited) if !self.sees_everything() => limited.denied(""),
            Some(_) | None => not_found(),
        }
    }

    /// The number of rights that were found changed.
    pub(in crate::grpc) fn changes(&self) -> u64 {
        self.0.as_ref().map_or(0, |limited| limited.known().changes)
    }

    /// The rights that are known now, to compare them with those of another call.
    pub(in crate::grpc) fn seen(&self) -> Seen {
        let Some(limited) = &self.0 else { return Seen::default() };
        let known = limited.known();
        Seen { everywhere: known.everywhere, namespaces: known.namespaces.clone() }
    }

    /// Asks about all rights again. Returns an error if the call has lost a required right.
    pub(super) async fn ask_again(&self) -> Result<(), Status> {
        let Some(limited) = &self.0 else { return Ok(()) };
        let before = limited.known().clone();
        if let Some(name) = &before.named {
            limited.check_named(name).await?;
        }
        let mut now = Known {
            changes: before.changes,
            required: before.required.clone(),
            named: before.named.clone(),
            ..Known::default()
        };
        if before.everywhere.is_some() {
            now.everywhere = Some(limited.may("").await?);
        }
        if now.everywhere != Some(true) {
            for namespace in before.namespaces.keys().chain(before.required.iter()).filter(|name| !name.is_empty()) {
                now.namespaces.insert(namespace.clone(), limited.may(namespace).await?);
            }
        }
        now.changes += u64::from(now != before);
        let lost = now.required.iter().find(|namespace| !now.sees(namespace)).cloned();
        *limited.known() = now;
        lost.map_or(Ok(()), |namespace| Err(limited.denied(&namespace)))
    }
}

/// The caller for whom state is kept.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::grpc) struct Whose {
    user: String,
    uid: String,
}

impl Whose {
    /// The user of this name.
    #[cfg(test)]
    pub(in crate::grpc) fn named(user: &str) -> Whose {
        Whose { user: user.to_owned(), uid: String::new() }
    }

    /// The name of the user.
    pub(in crate::grpc) fn user(&self) -> &str {
        &self.user
    }
}

/// The rights at some time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::grpc) struct Seen {
    everywhere: Option<bool>,
    namespaces: BTreeMap<String, bool>,
}

impl Seen {
    /// The namespaces that were asked about.
    pub(in crate::grpc) fn namespaces(&self) -> impl Iterator<Item = &String> {
        self.namespaces.keys()
    }
}

impl Limited {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn may(&self, namespace: &str) -> Result<bool, Status> {
        let Right { verb, resource } = self.right;
        let asked = Asked::Resource { verb, resource, namespace: namespace.to_owned() };
        self.authenticator.may(&self.caller, asked).await
    }

    async fn everywhere(&self) -> Result<bool, Status> {
        let known = self.known().everywhere;
        if let Some(known) = known {
            return Ok(known);
        }
        let may = self.may("").await?;
        self.known().everywhere = Some(may);
        Ok(may)
    }

    async fn ask(&self, namespace: &str) -> Result<(), Status> {
        let may = self.may(namespace).await?;
        self.known().namespaces.insert(namespace.to_owned(), may);
        Ok(())
    }

    async fn check_named(&self, name: &str) -> Result<(), Status> {
        let Right { verb, resource } = self.right;
        let asked = Asked::Named { verb, resource, name: name.to_owned() };
        if self.authenticator.may(&self.caller, asked).await? {
            return Ok(());
        }
        Err(status::name_denied(&self.caller.user, self.right, name))
    }

    fn denied(&self, namespace: &str) -> Status {
        status::access_denied(&self.caller.user, self.right, namespace)
    }
}
