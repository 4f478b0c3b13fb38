//! Tests of authentication and authorization against a scripted API server.

use super::caller::Caller;
use super::reviews::{Asked, Question, Reviews, TokenAnswer, Unanswered};
use super::*;
use futures::future::BoxFuture;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

mod authenticator;
mod places;
mod spans;
mod streams;
mod visibility;
mod walk;

/// An API server that uses a token as its user's name, and has a table of rights.
#[derive(Clone, Default)]
struct Oracle(Arc<Table>);

#[derive(Default)]
struct Table {
    users: Mutex<BTreeSet<String>>,
    /// User, verb, resource, namespace.
    rights: Mutex<BTreeSet<[String; 4]>>,
    is_silent: AtomicBool,
    asked: AtomicUsize,
    /// Of each token review: the audience.
    audiences: Mutex<Vec<Option<String>>>,
}

impl Oracle {
    fn knows(self, user: &str) -> Oracle {
        self.0.users.lock().unwrap().insert(user.to_owned());
        self
    }

    fn allows(self, user: &str, verb: &str, resource: &str, namespace: &str) -> Oracle {
        self.0.rights.lock().unwrap().insert([user, verb, resource, namespace].map(str::to_owned));
        self
    }

    /// Grants all reads of objects and decisions.
    fn shows(self, user: &str, namespace: &str) -> Oracle {
        let verbs = ["get", "list", "watch"];
        verbs.into_iter().fold(self, |oracle, verb| {
            oracle.allows(user, verb, "graphobjects", namespace).allows(user, verb, "decisions", namespace)
        })
    }

    fn forget_user(&self, user: &str) {
        self.0.users.lock().unwrap().remove(user);
    }

    fn forget_rights(&self, user: &str) {
        self.0.rights.lock().unwrap().retain(|[whose, ..]| whose != user);
    }

    fn silence(&self, yes: bool) {
        self.0.is_silent.store(yes, Ordering::Relaxed);
    }

    fn asked(&self) -> usize {
        self.0.asked.load(Ordering::Relaxed)
    }

    fn authenticator(&self) -> Arc<Authenticator> {
        Arc::new(Authenticator::asking(Box::new(self.clone()), &reviewed(), AccessMetrics::default()))
    }

    fn answer<T: Send + 'static>(&self, answer: T) -> BoxFuture<'static, Result<T, Unanswered>> {
        self.0.asked.fetch_add(1, Ordering::Relaxed);
        if self.0.is_silent.load(Ordering::Relaxed) {
            Box::pin(std::future::pending())
        } else {
            Box::pin(async { Ok(answer) })
        }
    }
}

impl Reviews for Oracle {
    fn token(&self, token: String, audience: Option<String>) -> BoxFuture<'static, Result<TokenAnswer, Unanswered>> {
        self.0.audiences.lock().unwrap_or_else(PoisonError::into_inner).push(audience);
        let known = self.0.users.lock().unwrap_or_else(PoisonError::into_inner).contains(&token);
        self.answer(match known {
            true => TokenAnswer::Accepted(caller(&token)),
            false => TokenAnswer::Refused("the token is unknown".to_owned()),
        })
    }

    fn access(&self, question: Arc<Question>) -> BoxFuture<'static, Result<bool, Unanswered>> {
        let (verb, resource, namespace) = match &question.asked {
            Asked::Resource { verb, resource, namespace } => (*verb, *resource, namespace.as_str()),
            Asked::Named { verb, resource, name } => (*verb, *resource, name.as_str()),
            Asked::Object { resource, namespace, .. } => ("get", resource.as_str(), namespace.as_str()),
            Asked::Path(path) => ("get", path.as_str(), ""),
        };
        let right = [&question.caller.user, verb, resource, namespace].map(str::to_owned);
        self.answer(self.0.rights.lock().unwrap_or_else(PoisonError::into_inner).contains(&right))
    }
}

fn reviewed() -> Reviewed {
    Reviewed { audience: "ownergraph".to_owned(), ..Reviewed::default() }
}

fn caller(user: &str) -> Caller {
    Caller { user: user.to_owned(), uid: String::new(), groups: Vec::new(), extra: BTreeMap::new() }
}
