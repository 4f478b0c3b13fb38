//! Authorization of the admin port, for all paths except liveness and readiness.

use super::caller::Credentials;
use super::reviews::Asked;
use super::{Authenticator, status};
use futures::FutureExt as _;
use runtime::admin::{Guard, Refusal, Visitor};
use std::sync::Arc;
use tonic::{Code, Status};

/// The name that the log uses for requests to the admin port.
const VISIT: &str = "admin";

impl Authenticator {
    /// Admits callers that may get the requested path.
    pub(crate) fn guard(self: &Arc<Authenticator>) -> Guard {
        let authenticator = Arc::clone(self);
        Guard::through(move |visitor| {
            let authenticator = Arc::clone(&authenticator);
            async move { authenticator.visit(visitor).await.map_err(|status| refusal(&status)) }.boxed()
        })
    }

    pub(super) async fn visit(&self, visitor: Visitor) -> Result<(), Status> {
        let credentials = Credentials::shown(visitor.authorization.as_ref(), Some(&visitor.peer));
        let identity = self.identify(&credentials).await.inspect_err(|status| self.refusals.note(VISIT, "", status))?;
        let user = &identity.caller.user;
        let may = match self.may(&identity.caller, Asked::Path(visitor.path.clone())).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(status::path_denied(user, &visitor.path)),
            Err(status) => Err(status),
        };
        may.inspect_err(|status| self.refusals.note(VISIT, user, status))
    }
}

fn refusal(status: &Status) -> Refusal {
    let why = status.message().to_owned();
    if status.code() == Code::Unauthenticated {
        Refusal::Unauthenticated(why)
    } else if status.code() == Code::PermissionDenied {
        Refusal::Forbidden(why)
    } else {
        Refusal::Unavailable(why)
    }
}
