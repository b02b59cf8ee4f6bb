//! A real headless Chromium, controlled by its DevTools protocol over two pipes.
//!
//! With `--remote-debugging-pipe` it reads commands from file descriptor 3 and writes responses and events to
//! 4: JSON messages, each terminated by a zero byte. No port is open, and pipes are the only dependency.

use super::Tool;
use super::wait::LIMIT;
use base64::Engine;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::{Instant, timeout};

/// A browser with one page; ends on drop.
pub struct Browser {
    _child: Child,
    commands: ChildStdin,
    messages: BufReader<ChildStdout>,
    session: Option<String>,
    last: u64,
    trouble: Vec<String>,
    _profile: TempDir,
}

impl Browser {
    /// Starts it with an empty page. `None` when there is no browser and none is required; in CI that is a
    /// failure.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start() -> Option<Self> {
        let program = Tool::Chromium.find()?.join("chromium");
        let profile = tempfile::tempdir().expect("a temporary folder");
        // The sandbox needs capabilities that test containers do not have; the browser only shows our own
        // pages.
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1"]).arg(program);
        command.args(["--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--disable-dev-shm-usage"]);
        command.arg(format!("--user-data-dir={}", profile.path().display()));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut child = command.spawn().expect("the browser starts");
        let commands = child.stdin.take().expect("it has a pipe");
        let messages = BufReader::new(child.stdout.take().expect("it has a pipe"));
        let mut browser = Self {
            _child: child,
            commands,
            messages,
            session: None,
            last: 0,
            trouble: Vec::new(),
            _profile: profile,
        };
        let target = browser.send("Target.createTarget", json!({"url": "about:blank"})).await;
        let id = &target["targetId"];
        let attached = browser.send("Target.attachToTarget", json!({"targetId": id, "flatten": true})).await;
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.send(&format!("{domain}.enable"), json!({})).await;
        }
        Some(browser)
    }

    /// Sends a command of the DevTools protocol, and waits for its response.
    ///
    /// # Panics
    /// When it fails, or the browser has ended.
    pub async fn send(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        let id = self.last;
        let mut command = json!({"id": id, "method": method, "params": params});
        if let Some(session) = &self.session {
            command["sessionId"] = session.as_str().into();
        }
        let mut text = command.to_string().into_bytes();
        text.push(0);
        self.commands.write_all(&text).await.expect("the browser reads");
        loop {
            let message = self.message(method).await;
            if message["id"] == id {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
        }
    }

    async fn message(&mut self, method: &str) -> Value {
        let mut bytes = Vec::new();
        let read = timeout(LIMIT, self.messages.read_until(0, &mut bytes)).await;
        let read = read.unwrap_or_else(|_| panic!("{method}: no answer of the browser in time"));
        assert!(read.expect("the browser writes") > 0, "{method}: the browser has ended");
        bytes.pop();
        let message: Value = serde_json::from_slice(&bytes).expect("messages are JSON");
        self.note(&message);
        message
    }

    /// Records errors of the console, except for refusals by an API: pages display those.
    fn note(&mut self, message: &Value) {
        let params = &message["params"];
        if params["entry"]["source"] == "network"
            && params["entry"]["url"].as_str().is_some_and(|url| url.contains("/api/"))
        {
            return;
        }
        let text = match message["method"].as_str() {
            Some("Runtime.exceptionThrown") => params["exceptionDetails"].to_string(),
            Some("Log.entryAdded") if params["entry"]["level"] == "error" => params["entry"].to_string(),
            Some("Runtime.consoleAPICalled") if params["type"] == "error" => params["args"].to_string(),
            _ => return,
        };
        self.trouble.push(text);
    }

    /// Errors of the pages since the last call: exceptions, violations of the Content-Security-Policy,
    /// missing files.
    pub fn take_trouble(&mut self) -> Vec<String> {
        std::mem::take(&mut self.trouble)
    }

    /// Sets the size of the window, and the dark colour scheme.
    pub async fn looks(&mut self, width: u32, height: u32, dark: bool) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.send("Emulation.setDeviceMetricsOverride", size).await;
        let value = if dark { "dark" } else { "light" };
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": value}]});
        self.send("Emulation.setEmulatedMedia", media).await;
    }

    /// Navigates to an address and waits until the page is loaded.
    ///
    /// # Panics
    /// When it does not load.
    pub async fn open(&mut self, url: &str) {
        // A page that differs only in the fragment would not be reloaded.
        self.send("Page.navigate", json!({"url": "about:blank"})).await;
        let opened = self.send("Page.navigate", json!({"url": url})).await;
        assert!(opened["errorText"].is_null(), "{url}: {}", opened["errorText"]);
        self.until("location.href !== 'about:blank' && document.readyState === 'complete'").await;
    }

    /// Value of an expression, or of its promise.
    ///
    /// # Panics
    /// When it throws.
    pub async fn evaluate(&mut self, expression: &str) -> Value {
        let asked = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let answer = self.send("Runtime.evaluate", asked).await;
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {}", answer["exceptionDetails"]);
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true, and returns the elapsed time.
    ///
    /// # Panics
    /// On a timeout, with the text of the page.
    pub async fn until(&mut self, expression: &str) -> Duration {
        let began = Instant::now();
        // A page that is being replaced has no context: the evaluation is repeated.
        let asked = json!({"expression": format!("Boolean({expression})"), "awaitPromise": true, "returnByValue": true});
        loop {
            if self.send("Runtime.evaluate", asked.clone()).await["result"]["value"] == true {
                return began.elapsed();
            }
            if began.elapsed() > LIMIT {
                let text = self.evaluate("document.body.innerText").await;
                panic!("not after {LIMIT:?}: {expression}\n{}", text.as_str().unwrap_or_default());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Presses a key: `Tab`, `Enter`, `ArrowDown`.
    pub async fn press(&mut self, key: &str) {
        let code = match key {
            "Tab" => 9,
            "Enter" => 13,
            "ArrowUp" => 38,
            "ArrowDown" => 40,
            "PageDown" => 34,
            "End" => 35,
            _ => 0,
        };
        let text = if key == "Enter" { "\r" } else { "" };
        let mut event =
            json!({"type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text});
        self.send("Input.dispatchKeyEvent", event.clone()).await;
        event["type"] = "keyUp".into();
        self.send("Input.dispatchKeyEvent", event).await;
    }

    /// Types a text into the focused element.
    pub async fn enter(&mut self, text: &str) {
        self.send("Input.insertText", json!({"text": text})).await;
    }

    /// Writes a screenshot into a PNG file.
    ///
    /// # Panics
    /// When it cannot be written.
    pub async fn picture(&mut self, file: &Path) {
        let answer = self.send("Page.captureScreenshot", json!({"format": "png"})).await;
        let data = answer["data"].as_str().unwrap_or_default();
        let bytes = base64::engine::general_purpose::STANDARD.decode(data).expect("it is base64");
        std::fs::write(file, bytes).expect("the file can be written");
    }
}
