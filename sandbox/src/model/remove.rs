//! Deletion: preconditions, grace, the three policies, finalizers.

use std::sync::Arc;

use engine::object::in_group;
use serde_json::Value;

use super::clock::{self, Now};
use super::error::{ApiError, Cause, Details, Reason};
use super::kinds::{DefaultPolicy, GroupResource, Type};
use super::list::ListQuery;
use super::metadata::{self, FOREGROUND, ORPHAN, Object};
use super::options::{DeleteOptions, Policy};
use super::store::ObjectKey;
use super::{Model, custom, namespaces};

/// The outcome of a DELETE.
#[derive(Debug, Clone)]
pub enum Deleted {
    /// Removed; with its last state.
    Removed(Arc<Object>),
    /// Terminating, and waiting for finalizers or its grace period.
    Kept(Arc<Object>),
}

/// The default grace period of a pod.
const DEFAULT_GRACE_SECONDS: i64 = 30;

/// The first step of a deletion.
enum Grace {
    /// Already waiting for at most the requested time: no change.
    Pending,
    /// Marked for deletion after this many seconds.
    Marked(i64),
    /// The type has no grace period, or it is over.
    None,
}

impl Model {
    /// Deletes an object, or marks it and waits for its finalizers.
    ///
    /// # Errors
    /// 404 if it is missing, 409 for a failed precondition, 422 for contradictory options.
    pub fn delete(
        &mut self,
        now: Now,
        resource: &GroupResource,
        key: &ObjectKey,
        options: &DeleteOptions,
    ) -> Result<Deleted, ApiError> {
        options.validate()?;
        let of = self.served(resource)?;
        let old = self.get(resource, &key.namespace, &key.name)?;
        check_preconditions(&of, &old, options)?;
        if *resource == namespaces::namespaces() && namespaces::begins_or_waits(&old) {
            let object = namespaces::mark(now, &old, options);
            return Ok(Deleted::Kept(self.put_if_changed(now, &of, key, &old, object, options)));
        }
        if *resource == custom::definitions() && !metadata::is_terminating(&old) {
            let object = custom::mark(now, &old);
            return Ok(Deleted::Kept(self.put_if_changed(now, &of, key, &old, object, options)));
        }
        let mut object = Object::clone(&old);
        let grace = if of.graceful { mark_gracefully(now, &mut object, options) } else { Grace::None };
        let wait = match grace {
            Grace::Pending => return Ok(Deleted::Kept(old)),
            Grace::Marked(seconds) => Some(seconds),
            Grace::None => None,
        };
        set_gc_finalizers(&of, &mut object, options);
        let held = !metadata::finalizers(&object).is_empty();
        if held && wait.is_none() {
            mark_now(now, &mut object);
        }
        if held || wait.is_some_and(|seconds| seconds > 0) {
            return Ok(Deleted::Kept(self.put_if_changed(now, &of, key, &old, object, options)));
        }
        // A type with a grace period is written once more before its removal, so that watchers see the mark even
        // without grace.
        let last = match wait {
            Some(_) => self.put_if_changed(now, &of, key, &old, object, options),
            None => old,
        };
        if !options.dry_run {
            self.erase(now, resource, key);
        }
        Ok(Deleted::Removed(last))
    }

    /// Deletes all objects of a query, and returns their earlier states.
    ///
    /// # Errors
    /// 404 for a type that is not served, 405 for namespaces, 422 for contradictory options.
    pub fn delete_collection(
        &mut self,
        now: Now,
        resource: &GroupResource,
        query: &ListQuery,
        options: &DeleteOptions,
    ) -> Result<Vec<Arc<Object>>, ApiError> {
        options.validate()?;
        if *resource == namespaces::namespaces() {
            let message = "the server does not allow this method on the requested resource";
            return Err(ApiError::new(Reason::MethodNotAllowed, message));
        }
        let found = self.list(resource, query)?.items;
        for object in &found {
            let key = ObjectKey::new(metadata::namespace(object), metadata::name(object));
            match self.delete(now, resource, &key, options) {
                Err(error) if error.reason != Reason::NotFound => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
        Ok(found)
    }

    fn put_if_changed(
        &mut self,
        now: Now,
        of: &Type,
        key: &ObjectKey,
        old: &Arc<Object>,
        object: Object,
        options: &DeleteOptions,
    ) -> Arc<Object> {
        if object == **old {
            Arc::clone(old)
        } else if options.dry_run {
            Arc::new(object)
        } else {
            self.put(now, &of.group_resource(), key.clone(), object)
        }
    }
}

impl DeleteOptions {
    /// Reads the body of a DELETE.
    ///
    /// # Errors
    /// 400 for a field of the wrong type and for an object of another kind, 422 for an unknown value.
    pub fn decode(body: &Value) -> Result<Self, ApiError> {
        let Some(fields) = body.as_object() else {
            return Err(ApiError::bad_request("the body of a DELETE must be a DeleteOptions object"));
        };
        let kind = fields.get("kind").and_then(Value::as_str).unwrap_or("DeleteOptions");
        if kind != "DeleteOptions" {
            return Err(ApiError::bad_request(format!("no kind \"{kind}\" is registered for the options of a DELETE")));
        }
        let nothing = Value::Null;
        let preconditions = present(body, "preconditions").unwrap_or(&nothing);
        if !preconditions.is_null() && !preconditions.is_object() {
            return Err(wrong_type("preconditions"));
        }
        let stages = match present(body, "dryRun") {
            Some(list) => list.as_array().ok_or_else(|| wrong_type("dryRun"))?.as_slice(),
            None => &[],
        };
        let grace = present(body, "gracePeriodSeconds");
        let orphan = present(body, "orphanDependents");
        Ok(Self {
            uid: text_field(preconditions, "uid")?,
            resource_version: text_field(preconditions, "resourceVersion")?,
            grace_period_seconds: grace
                .map(|seconds| seconds.as_i64().ok_or_else(|| wrong_type("gracePeriodSeconds")))
                .transpose()?,
            propagation_policy: text_field(body, "propagationPolicy")?.map(|word| Policy::parse(&word)).transpose()?,
            orphan_dependents: orphan
                .map(|flag| flag.as_bool().ok_or_else(|| wrong_type("orphanDependents")))
                .transpose()?,
            dry_run: parse_dry_run(stages.iter().map(|stage| stage.as_str().unwrap_or_default()).collect())?,
        })
    }

    fn validate(&self) -> Result<(), ApiError> {
        if self.propagation_policy.is_some() && self.orphan_dependents.is_some() {
            let why = "orphanDependents and deletionPropagation cannot be both set";
            return Err(invalid_options(Cause::invalid("propagationPolicy", "", why)));
        }
        Ok(())
    }
}

impl Policy {
    /// # Errors
    /// 422 for any other word.
    pub fn parse(word: &str) -> Result<Self, ApiError> {
        match word {
            "Orphan" => Ok(Self::Orphan),
            "Background" => Ok(Self::Background),
            "Foreground" => Ok(Self::Foreground),
            _ => {
                let known = "supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"";
                Err(unsupported_value("propagationPolicy", word, known))
            }
        }
    }
}

/// Whether a dryRun list requests a dry run. The only stage is `All`.
pub(crate) fn parse_dry_run(stages: Vec<&str>) -> Result<bool, ApiError> {
    match stages.iter().find(|stage| **stage != "All") {
        Some(stage) => Err(unsupported_value("dryRun", stage, "supported values: \"All\"")),
        None => Ok(!stages.is_empty()),
    }
}

fn unsupported_value(field: &str, value: &str, known: &str) -> ApiError {
    let message = format!("Unsupported value: \"{value}\": {known}");
    invalid_options(Cause { reason: "FieldValueNotSupported", message, field: field.to_owned() })
}

fn invalid_options(cause: Cause) -> ApiError {
    let message = format!("DeleteOptions.meta.k8s.io \"\" is invalid: {}: {}", cause.field, cause.message);
    let mut error = ApiError::new(Reason::Invalid, message);
    let (group, kind) = ("meta.k8s.io".to_owned(), "DeleteOptions".to_owned());
    *error.details = Details { group, kind, causes: vec![cause], ..Details::default() };
    error
}

/// A field that is present and not null.
fn present<'a>(fields: &'a Value, field: &str) -> Option<&'a Value> {
    fields.get(field).filter(|value| !value.is_null())
}

fn text_field(fields: &Value, field: &str) -> Result<Option<String>, ApiError> {
    let text = present(fields, field).map(|text| text.as_str().ok_or_else(|| wrong_type(field)));
    Ok(text.transpose()?.map(str::to_owned))
}

fn wrong_type(field: &str) -> ApiError {
    ApiError::bad_request(format!("json: cannot unmarshal into field DeleteOptions.{field}"))
}

fn check_preconditions(of: &Type, object: &Object, options: &DeleteOptions) -> Result<(), ApiError> {
    let checks = [
        ("UID", &options.uid, metadata::uid(object), "The object might have been deleted and then recreated"),
        (
            "ResourceVersion",
            &options.resource_version,
            metadata::text(object, "resourceVersion"),
            "The object might have been modified",
        ),
    ];
    for (what, wanted, actual, hint) in checks {
        let Some(wanted) = wanted.as_deref().filter(|wanted| *wanted != actual) else { continue };
        let why =
            format!("the {what} in the precondition ({wanted}) does not match the {what} in record ({actual}). {hint}");
        // Only this answer of the real server names the kind. All others name the resource.
        let mut error = ApiError::conflict(of, metadata::name(object), &why);
        let qualified = in_group(&of.kind, &of.group);
        error.message = format!("Operation cannot be fulfilled on {qualified} \"{}\": {why}", metadata::name(object));
        of.kind.clone_into(&mut error.details.kind);
        return Err(error);
    }
    Ok(())
}

/// The first step of deleting an object with grace: the mark, and the remaining time.
fn mark_gracefully(now: Now, object: &mut Object, options: &DeleteOptions) -> Grace {
    let asked = options.grace_period_seconds.map(|seconds| if seconds < 0 { 1 } else { seconds });
    if let Some(marked_at) = metadata::deletion_seconds(object) {
        let existing = metadata::grace_seconds(object).map_or(0, |seconds| if seconds < 0 { 1 } else { seconds });
        if existing == 0 {
            return Grace::None;
        }
        let Some(asked) = asked.filter(|asked| *asked < existing) else { return Grace::Pending };
        let (mut until, mut period) = (marked_at.saturating_sub(existing).saturating_add(asked), asked);
        if until < now.seconds() {
            until = now.seconds();
            period = if asked == 0 { 0 } else { 1 };
        }
        metadata::set(object, "deletionTimestamp", clock::format_timestamp(until));
        metadata::set(object, "deletionGracePeriodSeconds", period);
        return Grace::Marked(period.min(asked));
    }
    let field = |path: &[&str]| {
        let first = path.first().and_then(|field| object.get(*field));
        path.iter().skip(1).fold(first, |value, field| value.and_then(|value| value.get(*field)))
    };
    let specified = || field(&["spec", "terminationGracePeriodSeconds"]).and_then(Value::as_i64);
    let mut period = asked.unwrap_or_else(|| specified().unwrap_or(DEFAULT_GRACE_SECONDS));
    let unscheduled = field(&["spec", "nodeName"]).and_then(Value::as_str).is_none_or(str::is_empty);
    let phase = field(&["status", "phase"]).and_then(Value::as_str).unwrap_or_default();
    if unscheduled || matches!(phase, "Failed" | "Succeeded") {
        period = 0;
    }
    if period < 0 {
        period = 1;
    }
    metadata::set(object, "deletionTimestamp", clock::format_timestamp(now.seconds().saturating_add(period)));
    metadata::set(object, "deletionGracePeriodSeconds", period);
    raise_generation(object);
    Grace::Marked(period)
}

/// Marks an object with finalizers, without grace.
fn mark_now(now: Now, object: &mut Object) {
    if !metadata::is_terminating(object) {
        raise_generation(object);
    }
    if metadata::deletion_seconds(object).is_none_or(|at| at > now.seconds()) {
        metadata::set(object, "deletionTimestamp", now.timestamp());
    }
    metadata::set(object, "deletionGracePeriodSeconds", 0);
}

fn raise_generation(object: &mut Object) {
    let generation = metadata::generation(object);
    if generation > 0 {
        metadata::set(object, "generation", generation + 1);
    }
}

/// Replaces the two GC finalizers as the policy requires. A list with the same set keeps its order.
fn set_gc_finalizers(of: &Type, object: &mut Object, options: &DeleteOptions) {
    let existing: Vec<String> = metadata::finalizers(object).into_iter().map(str::to_owned).collect();
    let is_gc = |name: &String| name == ORPHAN || name == FOREGROUND;
    let mut wanted: Vec<String> = existing.iter().filter(|name| !is_gc(name)).cloned().collect();
    let chosen = gc_finalizer(of, &existing, options).map(str::to_owned);
    let held: Vec<&String> = existing.iter().filter(|name| is_gc(name)).collect();
    if held.iter().all(|name| chosen.as_ref() == Some(*name)) && held.is_empty() == chosen.is_none() {
        return;
    }
    wanted.extend(chosen);
    metadata::set_finalizers(object, &wanted);
}

/// The GC finalizers of a terminating object.
fn gc_finalizer(of: &Type, existing: &[String], options: &DeleteOptions) -> Option<&'static str> {
    if of.default_policy == DefaultPolicy::Unsupported {
        return None;
    }
    if let Some(orphan) = options.orphan_dependents {
        return orphan.then_some(ORPHAN);
    }
    if let Some(policy) = options.propagation_policy {
        return match policy {
            Policy::Orphan => Some(ORPHAN),
            Policy::Foreground => Some(FOREGROUND),
            Policy::Background => None,
        };
    }
    let known = [ORPHAN, FOREGROUND];
    let carried = existing.iter().find_map(|name| known.into_iter().find(|known| known == name));
    carried.or_else(|| (of.default_policy == DefaultPolicy::Orphan).then_some(ORPHAN))
}
