//! Pages in Chromium: the example of a web page, and the report of the comparison with another collector. An example of
//! a known origin shows each decision of a cascade. One of another origin shows none.

use crate::subscribers::head;
use anyhow::{Context, ensure};
use axum::Router;
use axum::response::Html;
use axum::routing::get;
use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tests::embedded::Api;
use tests::examples::{Example, fetched};
use tests::load::{configmaps, count, delete, delete_all, families, list, until};
use tests::process::{Directory, Process, free_port};
use tests::service::{Fleet, Programs, Service};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

const CHROMIUM: &str = "/usr/bin/chromium";
const FLAGS: [&str; 10] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-port=0",
];
const DEPENDENTS: usize = 1000;
/// The rows of the page's table.
const ROWS_MAX: u64 = 200;
const SOON: Duration = Duration::from_secs(60);
/// Reads from a page: the number of events, the newest position, the number of rows, and the state.
const SHOWN: &str = r##"
    const of = (selector) => document.querySelector(selector);
    [of("#count")?.value, of("#events td")?.textContent, of("#events")?.rows.length, of("#state")?.textContent]
"##;

/// Reads from the report: the three numbers, their size, and the number of files and scripts that the page asks for.
const REPORT: &str = r##"
    const numbers = [...document.querySelectorAll(".number strong")];
    [numbers.map((number) => number.innerText), numbers.map((number) => parseFloat(getComputedStyle(number).fontSize)),
        performance.getEntriesByType("resource").length + document.scripts.length]
"##;

/// A browser that the test asks by the DevTools protocol.
struct Browser {
    _process: Process,
    debugger: Mutex<WebSocketStream<MaybeTlsStream<TcpStream>>>,
    asked: AtomicU64,
}

/// One page of the browser.
struct Page(String);

impl Browser {
    async fn start(directory: &Path) -> anyhow::Result<Browser> {
        ensure!(Path::new(CHROMIUM).exists(), "{CHROMIUM} is missing: install the package chromium");
        let profile = directory.join("profile");
        let mut flags: Vec<String> = FLAGS.map(str::to_owned).into();
        flags.push(format!("--user-data-dir={}", profile.display()));
        let process = Process::spawn("chromium", directory, Path::new(CHROMIUM), &flags)?;
        let file = profile.join("DevToolsActivePort");
        let read = || async { Ok((std::fs::read_to_string(&file).unwrap_or_default(), process.output())) };
        let (address, _) =
            until("the browser listens", SOON, read, |(address, _)| address.lines().count() == 2).await?;
        let (port, path) = address.split_once('\n').context("the file has a port and a path")?;
        let (debugger, _) = connect_async(format!("ws://127.0.0.1:{port}{path}")).await?;
        Ok(Browser { _process: process, debugger: Mutex::new(debugger), asked: AtomicU64::new(0) })
    }

    async fn ask(&self, page: Option<&Page>, method: &str, parameters: Value) -> anyhow::Result<Value> {
        let id = self.asked.fetch_add(1, Ordering::Relaxed);
        let mut question = json!({ "id": id, "method": method, "params": parameters });
        if let Some(Page(session)) = page {
            question["sessionId"] = json!(session);
        }
        let mut debugger = self.debugger.lock().await;
        debugger.send(Message::text(question.to_string())).await?;
        loop {
            let message = debugger.next().await.context("the browser has ended")??;
            let Message::Text(text) = message else { continue };
            let answer: Value = serde_json::from_str(&text)?;
            // Events have no id. Only pages whose log is enabled report errors.
            let logged = &answer["params"]["entry"];
            ensure!(logged["level"] != "error", "the page logs {logged}");
            if answer["id"] == json!(id) {
                ensure!(answer["error"].is_null(), "{method}: {answer}");
                return Ok(answer["result"].clone());
            }
        }
    }

    async fn open(&self, url: &str) -> anyhow::Result<Page> {
        let target = self.ask(None, "Target.createTarget", json!({ "url": url })).await?;
        let wanted = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = self.ask(None, "Target.attachToTarget", wanted).await?;
        Ok(Page(attached["sessionId"].as_str().context("a session")?.to_owned()))
    }

    async fn evaluate(&self, page: &Page, expression: &str) -> anyhow::Result<Value> {
        let wanted = json!({ "expression": expression, "returnByValue": true, "replMode": true });
        Ok(self.ask(Some(page), "Runtime.evaluate", wanted).await?["result"]["value"].take())
    }

    /// Returns the number of events, the newest position, the number of rows, and the state.
    async fn shown(&self, page: &Page) -> anyhow::Result<(u64, u64, u64, String)> {
        let shown = self.evaluate(page, SHOWN).await?;
        let number = |at: usize| shown[at].as_str().and_then(|text| text.parse().ok()).unwrap_or_default();
        let state = shown[3].as_str().unwrap_or_default().to_owned();
        Ok((number(0), number(1), shown[2].as_u64().unwrap_or_default(), state))
    }
}

/// Serves the files of the page. Returns the origin.
async fn serve(files: &Path, servers: &mut JoinSet<std::io::Result<()>>) -> anyhow::Result<String> {
    let read = |name: &str| std::fs::read_to_string(files.join(name)).with_context(|| name.to_owned());
    let (index, script) = (read("index.html")?, read("page.js")?);
    let script = ([(http::header::CONTENT_TYPE, "text/javascript")], script);
    let routes = Router::new()
        .route("/", get(|| async move { Html(index.clone()) }))
        .route("/page.js", get(|| async move { script.clone() }));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let origin = format!("http://{}", listener.local_addr()?);
    servers.spawn(async move { axum::serve(listener, routes).await });
    Ok(origin)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_a_known_origin_shows_each_decision_and_another_page_none() -> anyhow::Result<()> {
    let directory = Directory::create()?;
    let Some(files) = fetched(Example::in_a_browser(directory.path()))? else { return Ok(()) };
    let Some(browser) = fetched(Browser::start(directory.path()).await)? else { return Ok(()) };
    let mut servers = JoinSet::new();
    let (known, foreign) = (serve(&files, &mut servers).await?, serve(&files, &mut servers).await?);
    let api = Api::start(directory.path()).await?;
    let flags = ["--grpc-web-origins", &known];
    let mut fleet = Fleet::start_with(&Programs::build()?, &api.kubeconfig, &flags).await?;
    fleet.add_executor("executor")?;
    let owners = families(&api.client, "default", "o", 1, DEPENDENTS).await?;
    let server = format!("/?server=http://{}", fleet.grpc());
    let page = browser.open(&format!("{known}{server}")).await?;
    let other = browser.open(&format!("{foreign}{server}")).await?;
    let maps = configmaps("default");
    delete(&api.client, &format!("{maps}/{}", owners[0]), "Background").await?;
    until("the page shows decisions while they are made", SOON, || browser.shown(&page), |shown| shown.0 > 0).await?;
    until("the cascade ends", SOON, || count(&api.client, &maps), |left| *left == 0).await?;
    let look = || async { Ok((browser.shown(&page).await?, head(&fleet).await?)) };
    let all = |((_, newest, ..), head): &((u64, u64, u64, String), u64)| newest == head;
    let ((events, _, rows, state), head) = until("the page has come to the end of the log", SOON, look, all).await?;
    ensure!(head >= 3 * DEPENDENTS as u64, "proposed, leased and succeeded for each: {head}");
    ensure!((events, rows) == (head, ROWS_MAX), "{events} events of {head} in {rows} rows: {state}");
    let refused = |shown: &(u64, u64, u64, String)| shown.3.ends_with("Failed to fetch");
    let (events, newest, rows, state) =
        until("the other page cannot call", SOON, || browser.shown(&other), refused).await?;
    ensure!((events, newest, rows) == (0, 0, 0), "a page of another origin shows {events} events: {state}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_report_of_a_comparison_needs_no_other_file() -> anyhow::Result<()> {
    let directory = Directory::create()?;
    let Some(browser) = fetched(Browser::start(directory.path()).await)? else { return Ok(()) };
    let (programs, api) = (Programs::build()?, Api::start(directory.path()).await?);
    let server = format!("127.0.0.1:{}", free_port()?);
    let flags = ["collect", "--kubeconfig", &api.flag, "--mode", "observe", "--listen", &server];
    let mut collector = Service::start(&programs, "ownergraph", "collect", directory.path(), &flags)?;
    collector.ready().await?;
    let maps = configmaps("default");
    let owners = families(&api.client, "default", "o", 1, 3).await?;
    delete(&api.client, &format!("{maps}/{}", owners[0]), "Background").await?;
    let decided = || collector.total_of("ownergraph_decisions_total", "action=\"delete\"");
    until("three deletions are decided", SOON, decided, |count| *count == 3.0).await?;
    // The test is the other collector.
    let dependents = list(&api.client, maps.as_str()).await?;
    let names = dependents.iter().filter_map(|object| Some(object["metadata"]["name"].as_str()?.to_owned()));
    delete_all(&api.client, &maps, names.collect()).await?;
    let agreed = || collector.total_of("ownergraph_parity_outcomes", "outcome=\"agreed\"");
    until("the comparison has all", SOON, agreed, |count| *count == 3.0).await?;
    let arguments = ["parity", "-o", "html", "--server", &server, "--kubeconfig", &api.flag];
    let report = Command::new(programs.path("ownergraph")).args(arguments).output().await?;
    ensure!(report.status.success(), "{}", String::from_utf8_lossy(&report.stderr));
    let file = directory.path().join("parity.html");
    std::fs::write(&file, &report.stdout)?;
    let page = browser.open(&format!("file://{}", file.display())).await?;
    browser.ask(Some(&page), "Log.enable", json!({})).await?;
    let read = || browser.evaluate(&page, REPORT);
    let shown = until("the page is there", SOON, read, |shown| shown[0][2].is_string()).await?;
    ensure!(shown[0][0] == "100.00 %" && shown[0][1] == "0", "{shown}");
    ensure!(shown[1].as_array().is_some_and(|sizes| sizes.iter().all(|size| size.as_f64() >= Some(32.0))), "{shown}");
    ensure!(shown[2] == 0, "the page asks for other files or has a script: {shown}");
    Ok(())
}

/// Reads from the console: its heading, and all of its text.
const CONSOLE: &str = r##"
    [document.querySelector("h1")?.textContent ?? "", document.body?.innerText ?? ""]
"##;

#[tokio::test(flavor = "multi_thread")]
async fn the_console_shows_the_collector() -> anyhow::Result<()> {
    let directory = Directory::create()?;
    let Some(browser) = fetched(Browser::start(directory.path()).await)? else { return Ok(()) };
    let (programs, api) = (Programs::build()?, Api::start(directory.path()).await?);
    let server = format!("127.0.0.1:{}", free_port()?);
    let flags = ["collect", "--kubeconfig", &api.flag, "--listen", &server];
    let mut collector = Service::start(&programs, "ownergraph", "collect", directory.path(), &flags)?;
    collector.ready().await?;
    let flags = ["console", "--no-browser", "--server", &server, "--kubeconfig", &api.flag].map(str::to_owned);
    let console = Process::spawn("console", directory.path(), &programs.path("ownergraph"), &flags)?;
    let read = || async { Ok(console.output()) };
    let address = |output: &str| output.split_whitespace().find(|word| word.contains("/#token=")).map(str::to_owned);
    let output = until("the console listens", SOON, read, |output| address(output).is_some()).await?;
    let page = browser.open(&address(&output).context("an address")?).await?;
    // The browser answers before it has loaded the page, which has no text until then.
    let loaded = || browser.evaluate(&page, CONSOLE);
    let has_text = |shown: &Value| shown[1].as_str().is_some_and(|text| !text.trim().is_empty());
    let first = until("the page has text", SOON, loaded, has_text).await?;
    if first[1].as_str().is_some_and(|text| text.contains("npm run build")) {
        let is_ci = std::env::var_os("CI").is_some_and(|ci| ci == "true");
        ensure!(!is_ci, "this build has no console: run `npm ci` and `npm run build` in console/");
        return Ok(());
    }
    browser.ask(Some(&page), "Log.enable", json!({})).await?;
    let shown = || browser.evaluate(&page, CONSOLE);
    let is_there = |shown: &Value| {
        let text = shown[1].as_str().unwrap_or_default().to_lowercase();
        shown[0] == "Overview" && text.contains("backlog")
    };
    until("the console shows the collector", SOON, shown, is_there).await?;
    Ok(())
}
