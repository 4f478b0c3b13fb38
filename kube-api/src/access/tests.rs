use std::fs;

use tempfile::TempDir;

use super::*;

const GOOD: &str = r#"
apiVersion: v1
kind: Config
current-context: dev
clusters:
- name: one
  cluster: {server: "https://127.0.0.1:6443"}
- name: behind
  cluster: {server: "https://127.0.0.1:6443", proxy-url: "ftp://me:proxy-password@proxy:3128"}
- name: no-ca
  cluster: {server: "https://127.0.0.1:6443", certificate-authority: absent-ca.pem}
- name: bad-url
  cluster: {server: "https://not an address"}
- name: no-url
  cluster: {}
contexts:
- {name: dev, context: {cluster: one, user: me}}
- {name: behind, context: {cluster: behind, user: me}}
- {name: lost, context: {cluster: elsewhere, user: me}}
- {name: no-ca, context: {cluster: no-ca, user: me}}
- {name: bad-url, context: {cluster: bad-url, user: me}}
- {name: no-url, context: {cluster: no-url, user: me}}
- {name: bad-cert, context: {cluster: one, user: bad-cert}}
users:
- name: me
  user: {token: secret-token}
- name: bad-cert
  user: {client-certificate: absent.crt, client-key: absent.key}
"#;

const KNOWN: &str = "it has: dev, behind, lost, no-ca, bad-url, no-url, bad-cert";

fn nowhere() -> Places {
    Places { kubeconfig_variable: None, home: None, in_pod: false, proxies: Environment::default() }
}

fn file(dir: &TempDir, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = dir.path().join(name);
    fs::write(&path, content).unwrap();
    path
}

fn access(kubeconfig: &Path, context: Option<&str>) -> Access {
    Access { kubeconfig: Some(kubeconfig.to_owned()), context: context.map(str::to_owned), ..Access::default() }
}

/// The sentence, with the directory replaced by DIR.
async fn sentence(dir: &TempDir, access: &Access, places: Places) -> String {
    let error = match find(access, places).await {
        Err(error) => error,
        Ok(found) => match crate::client::Cluster::build(found, "test") {
            Err(error) => error,
            Ok(_) => panic!("there is a way: {access:?}"),
        },
    };
    error.to_string().replace(&dir.path().display().to_string(), "DIR")
}

#[tokio::test]
async fn each_failure_is_one_sentence_that_says_what_to_do() {
    let dir = TempDir::new().unwrap();
    let good = file(&dir, "good", GOOD);
    let no_current = file(&dir, "no-current", GOOD.replace("current-context: dev", "current-context: \"\""));
    let empty = file(&dir, "empty", "");
    let prose = file(&dir, "prose", "just some words");
    let torn = file(&dir, "torn", "contexts: [\nusers:\n  - {token: secret-token");
    let binary = file(&dir, "binary", [0xff, 0x00, 0xc3, 0x28]);
    let absent = dir.path().join("absent");
    let cases: &[(&Path, Option<&str>, &str)] = &[
        (&absent, None, "the kubeconfig DIR/absent (--kubeconfig) does not exist; set it to an existing file"),
        (dir.path(), None, "the kubeconfig DIR (--kubeconfig) cannot be read: Is a directory (os error 21)"),
        (&binary, None, "the kubeconfig DIR/binary (--kubeconfig) cannot be read: Invalid UTF-8"),
        (&prose, None, "the kubeconfig DIR/prose (--kubeconfig) is not a kubeconfig: "),
        (&torn, None, "the kubeconfig DIR/torn (--kubeconfig) is not a kubeconfig: "),
        (
            &empty,
            None,
            "DIR/empty sets no current-context; choose one with --context, or with kubectl config use-context (the file has no contexts)",
        ),
        (&empty, Some("dev"), "DIR/empty has no context \"dev\" (the file has no contexts)"),
        (
            &no_current,
            None,
            &format!(
                "DIR/no-current sets no current-context; choose one with --context, or with kubectl config use-context ({KNOWN})"
            ),
        ),
        (&good, Some("prod"), &format!("DIR/good has no context \"prod\" ({KNOWN})")),
        (&good, Some("lost"), "context \"lost\" of DIR/good names the cluster \"elsewhere\", which does not exist"),
        (
            &good,
            Some("behind"),
            "the proxy-url of context \"behind\" of DIR/good is not usable: it is not a URL such as http://proxy.example:3128 with the scheme http, https, socks5 or socks5h",
        ),
        (
            &good,
            Some("no-ca"),
            "context \"no-ca\" of DIR/good is not usable: failed to load certificate authority: failed to read file '\"DIR/absent-ca.pem\"': No such file",
        ),
        (&good, Some("bad-url"), "context \"bad-url\" of DIR/good is not usable: failed to parse cluster url: "),
        (&good, Some("no-url"), "context \"no-url\" of DIR/good is not usable: cluster url is missing"),
        (
            &good,
            Some("bad-cert"),
            "context \"bad-cert\" of DIR/good is not usable: failed to load client certificate: failed to read file '\"DIR/absent.crt\"': No such file",
        ),
    ];
    for (path, context, expected) in cases {
        let sentence = sentence(&dir, &access(path, *context), nowhere()).await;
        assert!(sentence.starts_with(expected), "\nexpected {expected}\ngot      {sentence}");
        assert_eq!(sentence.lines().count(), 1, "{sentence}");
        assert!(!sentence.contains("secret-token") && !sentence.contains("proxy-password"), "{sentence}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_without_permission_is_named() {
    use std::os::unix::fs::PermissionsExt;
    let dir = TempDir::new().unwrap();
    let path = file(&dir, "locked", GOOD);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    if fs::read(&path).is_ok() {
        return; // The superuser reads everything.
    }
    let sentence = sentence(&dir, &access(&path, None), nowhere()).await;
    assert!(
        sentence.starts_with("the kubeconfig DIR/locked (--kubeconfig) cannot be read: Permission denied"),
        "{sentence}"
    );
}

#[tokio::test]
async fn the_order_is_kubectls() {
    let dir = TempDir::new().unwrap();
    let home = dir.path().join("home");
    fs::create_dir_all(home.join(".kube")).unwrap();
    let named = |context: &str| {
        format!(
            "current-context: {context}\nclusters: [{{name: c, cluster: {{server: \"http://{context}:1\"}}}}]\n\
             contexts: [{{name: {context}, context: {{cluster: c}}}}]\n"
        )
    };
    fs::write(home.join(".kube/config"), named("home")).unwrap();
    let flag = file(&dir, "flag", named("flag"));
    let first = file(&dir, "first", named("first"));
    let second = file(&dir, "second", named("second"));
    let absent = dir.path().join("absent");
    let list = std::env::join_paths([absent.clone(), PathBuf::new(), first, second]).unwrap();
    let places = |variable: Option<&OsString>, home: Option<&PathBuf>| Places {
        kubeconfig_variable: variable.cloned(),
        home: home.cloned(),
        in_pod: false,
        proxies: Environment::default(),
    };
    let url =
        async |access: &Access, places: Places| find(access, places).await.unwrap().config.cluster_url.to_string();
    let any = Access::default();
    let second_context = Access { context: Some("second".to_owned()), ..Access::default() };

    assert_eq!(url(&access(&flag, None), places(Some(&list), Some(&home))).await, "http://flag:1/");
    assert_eq!(url(&any, places(Some(&list), Some(&home))).await, "http://first:1/");
    // The cluster "c" of the first file wins, as in kubectl.
    assert_eq!(url(&second_context, places(Some(&list), Some(&home))).await, "http://first:1/");
    assert_eq!(url(&any, places(Some(&OsString::new()), Some(&home))).await, "http://home:1/");
    assert_eq!(url(&any, places(None, Some(&home))).await, "http://home:1/");

    let missing = sentence(&dir, &any, places(Some(&absent.clone().into_os_string()), Some(&home))).await;
    assert_eq!(missing, "the kubeconfig DIR/absent (KUBECONFIG) does not exist; set it to an existing file");
    let nothing = sentence(&dir, &any, places(None, Some(&dir.path().to_owned()))).await;
    assert_eq!(
        nothing,
        "no access to an API server: --kubeconfig and KUBECONFIG are not set, DIR/.kube/config does not exist, \
         and no pod service account exists; set --kubeconfig or KUBECONFIG"
    );
    let in_pod = Places { kubeconfig_variable: None, home: None, in_pod: true, proxies: Environment::default() };
    let context_in_pod = sentence(&dir, &second_context, in_pod).await;
    assert!(context_in_pod.starts_with("--context \"second\" needs a kubeconfig"), "{context_in_pod}");
}

#[tokio::test]
async fn a_good_kubeconfig_names_its_context() {
    let dir = TempDir::new().unwrap();
    let found = find(&access(&file(&dir, "good", GOOD), None), nowhere()).await.unwrap();
    assert_eq!(found.name, "dev");
    assert_eq!(found.config.cluster_url.to_string(), "https://127.0.0.1:6443/");
}
