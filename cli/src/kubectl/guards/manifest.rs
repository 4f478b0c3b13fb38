//! A guard that a person has written, as YAML or JSON. The caller needs the right to create guards of its kind.

use super::store;
use crate::failure::Failure;
use crate::kubectl::session::Session;
use engine::guard::GuardKind;
use serde_json::Value;

/// The largest field of a guard is the certificate bundle of a webhook, with 256 KiB.
const MAX_BYTES: usize = 320 << 10;
/// A definition of another version drops fields that it does not know, and the guard would hold something else.
const STRICT: &str = "&fieldValidation=Strict";
const DRY_RUN: &str = "&dryRun=All";
/// The kinds that a person writes. The graph service creates pauses.
const KINDS: [GuardKind; 4] = [GuardKind::Protection, GuardKind::Budget, GuardKind::Approval, GuardKind::Gate];

/// Creates the guard, or lets the API server only check it. Returns its name, such as `protections/NAME`.
pub(in crate::kubectl) async fn create(session: &Session, text: &str, is_dry: bool) -> Result<String, Failure> {
    let (kind, object) = read(text).map_err(Failure::Usage)?;
    let options = format!("{STRICT}{}", if is_dry { DRY_RUN } else { "" });
    let created = store::create(session, kind, &object, &options).await?;
    Ok(format!("{}/{}", kind.plural(), created["metadata"]["name"].as_str().unwrap_or_default()))
}

/// The kind and the object of a manifest. The error is a sentence.
fn read(text: &str) -> Result<(GuardKind, Value), String> {
    if text.len() > MAX_BYTES {
        return Err(format!("the manifest has more than {MAX_BYTES} bytes"));
    }
    let unread = |error: &dyn std::fmt::Display| format!("the manifest is neither YAML nor JSON: {error}");
    let object: Value = if text.trim_start().starts_with('{') {
        serde_json::from_str(text).or_else(|_| serde_saphyr::from_str(text)).map_err(|error| unread(&error))?
    } else {
        serde_saphyr::from_str(text).map_err(|error| unread(&error))?
    };
    let (version, kind) = (&object["apiVersion"], &object["kind"]);
    match KINDS.into_iter().find(|known| version == store::API_VERSION && kind == known.as_kind()) {
        Some(kind) => Ok((kind, object)),
        None => Err(format!(
            "the manifest has apiVersion {version} and kind {kind}, and must have {} and one of {}",
            store::API_VERSION,
            KINDS.map(GuardKind::as_kind).join(", ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROTECTION: &str = "apiVersion: ownergraph.dev/v1alpha1\nkind: Protection\nmetadata: {name: a}\n";

    #[test]
    fn a_manifest_is_one_guard_of_a_kind_that_persons_write() {
        let (kind, object) = read(PROTECTION).unwrap();
        assert_eq!((kind, &object["metadata"]["name"]), (GuardKind::Protection, &Value::from("a")));
        let json = r#" {"apiVersion": "ownergraph.dev/v1alpha1", "kind": "Gate"}"#;
        assert_eq!(read(json).unwrap().0, GuardKind::Gate);
        let other = |from: &str, to: &str| PROTECTION.replace(from, to);
        for (text, part) in [
            (other("ownergraph.dev/v1alpha1", "v1"), "apiVersion \"v1\" and kind \"Protection\", and must have"),
            (other("v1alpha1", "v1"), "must have ownergraph.dev/v1alpha1"),
            (other("Protection", "Pause"), "one of Protection, Budget, Approval, Gate"),
            (other("Protection", "ProtectionList"), "one of Protection"),
            (other("Protection", "[Protection]"), "one of Protection"),
            (other("kind: Protection\n", ""), "kind null"),
            (format!("{PROTECTION}---\n{PROTECTION}"), "neither YAML nor JSON"),
            (format!("- {}", PROTECTION.replace('\n', "\n  ")), "apiVersion null"),
            ("[".to_owned(), "neither YAML nor JSON"),
            (String::new(), "must have"),
            (format!("{PROTECTION}spec: {}", "a".repeat(MAX_BYTES)), "more than 327680 bytes"),
        ] {
            let why = read(&text).unwrap_err();
            assert!(why.contains(part), "{text:.80}: {why}");
        }
    }
}
