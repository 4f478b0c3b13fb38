//! The health check of Argo CD for pauses. Argo CD runs it in its own dialect of Lua.

use anyhow::{Context, ensure};
use serde_json::Value;
use std::fs;
use std::process::Command;
use tests::chart::root;

/// Returns the value as a table constructor of Lua.
fn lua(value: &Value) -> String {
    match value {
        Value::Null => "nil".to_owned(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
        Value::Array(items) => format!("{{{}}}", items.iter().map(lua).collect::<Vec<_>>().join(",")),
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| format!("[{name:?}]={}", lua(value));
            format!("{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(","))
        }
    }
}

#[test]
fn argo_cd_waits_until_a_pause_is_in_effect() -> anyhow::Result<()> {
    let module = root().join("tests/lua");
    if Command::new("go").arg("version").current_dir(&module).output().is_err() {
        ensure!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "with CI=true a skip is a failure: no `go`");
        eprintln!("skipped: no `go` on PATH, with which Lua is built");
        return Ok(());
    }
    let scratch = tempfile::tempdir()?;
    let (program, script) = (scratch.path().join("glua"), scratch.path().join("case.lua"));
    let mut go = Command::new("go");
    go.args(["build", "-o"]).arg(&program).arg("github.com/yuin/gopher-lua/cmd/glua").current_dir(&module);
    let built = go.output()?;
    ensure!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));

    let directory = root().join("deploy/argocd/ownergraph.dev/Pause");
    let read = |file: &str| fs::read_to_string(directory.join(file)).context(file.to_owned());
    let cases: Value = serde_saphyr::from_str(&read("health_test.yaml")?)?;
    let check = read("health.lua")?;
    let cases = cases["tests"].as_array().context("no tests")?;
    assert_eq!(cases.len(), fs::read_dir(directory.join("testdata"))?.count());
    for case in cases {
        let input: Value = serde_saphyr::from_str(&read(case["inputPath"].as_str().context("no input")?)?)?;
        let ask = format!(
            "obj = {}\nlocal hs = (function()\n{check}end)()\nio.write(hs.status, ': ', hs.message)\n",
            lua(&input)
        );
        fs::write(&script, ask)?;
        let output = Command::new(&program).arg(&script).output()?;
        let text = |field: &str| case["healthStatus"][field].as_str().unwrap_or_default().to_owned();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(said, format!("{}: {}", text("status"), text("message")), "{case}: {output:?}");
    }
    Ok(())
}
