//! Known tokens and their rights: TokenReview and SubjectAccessReview.
//!
//! Both are scripted: tokens by their text, rights as a plain list. They do not protect the server itself, which
//! authenticates no client. Nothing is stored, and discovery does not show reviews.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{ApiError, Reason};

/// The user of a token.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holder {
    pub user: String,
    pub groups: Vec<String>,
    /// Like the real server's `authentication.kubernetes.io/pod-name` for tokens that are bound to a pod.
    pub extra: BTreeMap<String, Vec<String>>,
    /// The audiences that the token was issued for.
    pub audiences: Vec<String>,
}

/// One right of a user or group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Right {
    /// The name of a user or of a group.
    pub subject: String,
    pub verb: String,
    pub on: On,
}

/// The subject of a right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum On {
    Resource {
        group: String,
        resource: String,
        /// `None`: all namespaces, and subjects without one.
        namespace: Option<String>,
    },
    /// A non-resource path.
    Path(String),
}

/// All tokens and rights.
#[derive(Debug, Clone, Default)]
pub struct Callers {
    pub tokens: BTreeMap<String, Holder>,
    pub rights: Vec<Right>,
}

impl Callers {
    /// The status of a TokenReview.
    ///
    /// # Errors
    /// 400 without a token.
    pub fn review_token(&self, spec: &Value) -> Result<Value, ApiError> {
        let token = spec["token"].as_str().unwrap_or_default();
        if token.is_empty() {
            return Err(ApiError::new(Reason::BadRequest, "token is required for TokenReview in authentication"));
        }
        let wanted = spec["audiences"].as_array().cloned().unwrap_or_default();
        let holder = self.tokens.get(token).ok_or("invalid bearer token");
        let accepted = holder.and_then(|holder| {
            let is_for =
                |audience: &&Value| audience.as_str().is_some_and(|name| holder.audiences.iter().any(|of| of == name));
            let audiences: Vec<&Value> = wanted.iter().filter(is_for).collect();
            if audiences.is_empty() {
                Err("token audiences are invalid for the target audiences")
            } else {
                Ok((holder, audiences))
            }
        });
        Ok(match accepted {
            Ok((holder, audiences)) => {
                let user = json!({"username": holder.user, "groups": holder.groups, "extra": holder.extra});
                json!({"authenticated": true, "user": user, "audiences": audiences})
            }
            Err(why) => json!({"user": {}, "error": why}),
        })
    }

    /// The status of a SubjectAccessReview.
    pub fn review_access(&self, spec: &Value) -> Value {
        let groups = spec["groups"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let subjects: Vec<&str> = groups.chain(spec["user"].as_str()).collect();
        let allowed = self.rights.iter().any(|right| subjects.contains(&right.subject.as_str()) && right.covers(spec));
        json!({"allowed": allowed})
    }
}

impl Right {
    fn covers(&self, spec: &Value) -> bool {
        let is = |value: &Value, text: &str| value.as_str().unwrap_or_default() == text;
        let (asked, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
        match &self.on {
            On::Resource { group, resource, namespace } => {
                is(&asked["verb"], &self.verb)
                    && is(&asked["group"], group)
                    && is(&asked["resource"], resource)
                    && namespace.as_ref().is_none_or(|namespace| is(&asked["namespace"], namespace))
            }
            On::Path(of) => is(&path["verb"], &self.verb) && is(&path["path"], of),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn callers() -> Callers {
        let holder = Holder { user: "eve".to_owned(), audiences: vec!["ownergraph".to_owned()], ..Holder::default() };
        let on = |namespace: Option<&str>| On::Resource {
            group: "ownergraph.dev".to_owned(),
            resource: "graphobjects".to_owned(),
            namespace: namespace.map(str::to_owned),
        };
        let right = |subject: &str, on: On| Right { subject: subject.to_owned(), verb: "get".to_owned(), on };
        Callers {
            tokens: BTreeMap::from([("secret".to_owned(), holder)]),
            rights: vec![
                right("eve", on(Some("shop"))),
                right("admins", on(None)),
                right("eve", On::Path("/metrics".to_owned())),
            ],
        }
    }

    #[test]
    fn a_token_is_good_for_its_audiences() {
        let review =
            |token: &str, audience: &str| callers().review_token(&json!({"token": token, "audiences": [audience]}));
        assert_eq!(review("secret", "ownergraph").unwrap()["user"]["username"], "eve");
        for (token, audience) in [("secret", "others"), ("guess", "ownergraph")] {
            assert_eq!(review(token, audience).unwrap()["authenticated"], Value::Null);
        }
        assert_eq!(review("", "ownergraph").unwrap_err().code(), 400);
    }

    #[test]
    fn a_right_is_of_a_user_or_a_group_and_for_a_namespace_or_all() {
        let may = |user: &str, group: &str, namespace: &str| {
            let asked =
                json!({"verb": "get", "group": "ownergraph.dev", "resource": "graphobjects", "namespace": namespace});
            callers().review_access(&json!({"user": user, "groups": [group], "resourceAttributes": asked}))["allowed"]
                == true
        };
        assert!(may("eve", "", "shop") && may("x", "admins", "shop") && may("x", "admins", ""));
        assert!(!may("eve", "", "bank") && !may("eve", "", "") && !may("x", "", "shop"));
        let path = |path: &str| json!({"user": "eve", "nonResourceAttributes": {"verb": "get", "path": path}});
        assert_eq!(callers().review_access(&path("/metrics"))["allowed"], true);
        assert_eq!(callers().review_access(&path("/other"))["allowed"], false);
    }
}
