//! Files: the methods, transfers, and what must not be opened.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty, Full};
use serde_json::{Value, json};

use crate::guest::{Guest, required};

async fn method(guest: &Guest, name: &str, body: Value) -> (u16, Value) {
    guest.call(&format!("/filesystem.Filesystem/{name}"), &body).await
}

async fn get(guest: &Guest, path: &str, range: Option<&str>) -> (u16, Vec<u8>) {
    let mut request = Request::get(format!("/files?path={path}"));
    if let Some(range) = range {
        request = request.header("range", range);
    }
    let answer = guest.send(request.body(Empty::<Bytes>::new()).unwrap()).await;
    let status = answer.status().as_u16();
    (status, answer.into_body().collect().await.unwrap().to_bytes().to_vec())
}

async fn put(guest: &Guest, path: &str, content: Vec<u8>) -> (u16, Value) {
    let request = Request::post(format!("/files?path={path}")).header("content-type", "application/octet-stream");
    let answer = guest.send(request.body(Full::from(content)).unwrap()).await;
    let status = answer.status().as_u16();
    let bytes = answer.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&bytes).unwrap())
}

#[tokio::test]
async fn files_go_up_and_down_byte_for_byte() {
    required();
    let guest = Guest::start(false).await;
    let content: Vec<u8> = (0..3_000_000_u32).map(|i| u8::try_from(i * 7 % 251).unwrap()).collect();
    let (status, answer) = put(&guest, "a/b/c%20d.bin", content.clone()).await;
    assert_eq!(
        (status, answer),
        (200, json!([{ "name": "c d.bin", "path": "/home/user/a/b/c d.bin", "type": "file" }]))
    );
    assert_eq!(get(&guest, "~/a/b/c%20d.bin", None).await, (200, content.clone()));
    assert_eq!(get(&guest, "a/b/c%20d.bin", Some("bytes=5-9")).await, (206, content[5..10].to_vec()));
    assert_eq!(get(&guest, "a/b/c%20d.bin", Some("bytes=9000000-")).await.0, 416);
    let owner = guest.shell("stat -c '%u %g %a' a a/b/c*").await.text();
    assert_eq!(owner, "1000 1000 755\n1000 1000 644\n");
    assert_eq!(put(&guest, "a/b/c%20d.bin", b"short".to_vec()).await.0, 200);
    assert_eq!(get(&guest, "a/b/c%20d.bin", None).await.1, b"short");
    // A file that does not know its size.
    let (status, text) = get(&guest, "/proc/version", None).await;
    assert!(status == 200 && text.starts_with(b"Linux"), "{status}");
}

#[tokio::test]
async fn a_form_holds_several_files() {
    required();
    let guest = Guest::start(false).await;
    let form = |parts: &[(&str, &str)]| {
        let parts: String = parts
            .iter()
            .map(|(name, text)| {
                format!("--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\r\n{text}\r\n")
            })
            .collect();
        let request = Request::post("/files").header("content-type", "multipart/form-data; boundary=B");
        request.body(Full::<Bytes>::from(parts + "--B--\r\n")).unwrap()
    };
    let answer = guest.send(form(&[("/home/user/x/1", "one"), ("two", "zwei")])).await;
    assert_eq!(answer.status(), 200);
    assert_eq!(get(&guest, "x/1", None).await.1, b"one");
    assert_eq!(get(&guest, "two", None).await.1, b"zwei");
    assert_eq!(guest.send(form(&[("same", "1"), ("same", "2")])).await.status(), 400);
    assert_eq!(guest.send(form(&[])).await.status(), 400);
}

#[tokio::test]
async fn f08_what_is_no_regular_file_is_refused_at_once() {
    required();
    let guest = Guest::start(false).await;
    let made = guest.shell("mkfifo p; mkdir d; ln -s /proc/self/root/etc/passwd m; ln -s loop loop; (cat p > got &) ; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"s\")'").await;
    assert_eq!(made.code(), 0, "{made:?}");
    for path in [
        "p",
        "d",
        "s",
        "loop",
        "/dev/zero",
        "/proc/self/fd/3",
        "/proc/self/exe",
        "m",
        "/proc/1/root/etc/passwd",
        "/",
        "%00",
    ] {
        let (status, _) = get(&guest, path, None).await;
        assert!((400..500).contains(&status) && status != 404, "GET {path}: {status}");
        let (status, answer) = put(&guest, path, b"x".to_vec()).await;
        assert!((400..500).contains(&status), "POST {path}: {status} {answer}");
    }
    assert_eq!(get(&guest, "none", None).await.0, 404);
    assert_eq!(guest.shell("true").await.code(), 0);
}

#[tokio::test]
async fn the_methods_answer_as_e2b_does() {
    required();
    let guest = Guest::start(false).await;
    let (status, answer) = method(&guest, "MakeDir", json!({ "path": "p/q" })).await;
    assert_eq!((status, &answer["entry"]["type"]), (200, &json!("FILE_TYPE_DIRECTORY")));
    let (status, answer) = method(&guest, "MakeDir", json!({ "path": "p/q" })).await;
    assert_eq!((status, &answer["code"]), (409, &json!("already_exists")));
    assert_eq!(put(&guest, "p/f", b"12345".to_vec()).await.0, 200);
    assert_eq!(method(&guest, "MakeDir", json!({ "path": "p/f" })).await.0, 400);
    assert_eq!(method(&guest, "MakeDir", json!({ "path": "p/f/x" })).await.0, 400);
    guest.shell("ln -s p/f l; ln -s nowhere broken; chmod 4711 p/f").await;
    let (status, answer) = method(&guest, "Stat", json!({ "path": "p/f", "unknown": 1 })).await;
    let entry = &answer["entry"];
    assert_eq!((status, &entry["size"], &entry["mode"]), (200, &json!("5"), &json!(0o4711)), "{answer}");
    assert_eq!(entry["permissions"], "urwx--x--x");
    assert!(entry["modifiedTime"].as_str().unwrap().ends_with('Z'));
    let (_, answer) = method(&guest, "Stat", json!({ "path": "l" })).await;
    let entry = &answer["entry"];
    assert_eq!((&entry["type"], &entry["symlinkTarget"]), (&json!("FILE_TYPE_FILE"), &json!("/home/user/p/f")));
    assert_eq!(entry["permissions"], "Lrwxrwxrwx");
    let (_, answer) = method(&guest, "Stat", json!({ "path": "broken" })).await;
    assert_eq!(answer["entry"]["type"], "FILE_TYPE_SYMLINK");
    let (status, answer) = method(&guest, "Stat", json!({ "path": "none" })).await;
    assert_eq!((status, &answer["code"]), (404, &json!("not_found")));
    let (_, answer) = method(&guest, "ListDir", json!({ "path": "~", "depth": 2 })).await;
    let paths: Vec<&str> = answer["entries"].as_array().unwrap().iter().map(|e| e["path"].as_str().unwrap()).collect();
    let at = |name: &str| format!("/home/user/{name}");
    assert_eq!(paths, [at("broken"), at("l"), at("p"), at("p/f"), at("p/q")]);
    assert_eq!(method(&guest, "ListDir", json!({ "path": "p/f" })).await.0, 400);
    let (status, answer) = method(&guest, "Move", json!({ "source": "p/f", "destination": "new/g" })).await;
    assert_eq!((status, &answer["entry"]["path"]), (200, &json!(at("new/g"))));
    assert_eq!(method(&guest, "Move", json!({ "source": "p/f", "destination": "x" })).await.0, 404);
    guest.shell("mkdir -p t/a/b; touch t/a/b/c; ln -s /etc t/etc").await;
    for path in ["t", "t", "none/at/all", "l"] {
        assert_eq!(method(&guest, "Remove", json!({ "path": path })).await.0, 200);
    }
    assert_eq!(guest.shell("ls; ls /etc | head -n 1 | wc -l").await.text(), "broken\nnew\np\n1\n");
    assert_eq!(method(&guest, "Remove", json!({ "path": "/" })).await.0, 400);
    assert_eq!(method(&guest, "Bogus", json!({})).await.0, 501);
}

/// Uploads into one new deep folder at the same time all succeed (rivals 25).
#[tokio::test]
async fn concurrent_uploads_make_their_folders_together() {
    required();
    let guest = Guest::start(false).await;
    let uploads = (0..40).map(|i| {
        let guest = &guest;
        async move { put(guest, &format!("n/e/w/{i}"), vec![b'x'; 20_000]).await.0 }
    });
    assert!(futures_util::future::join_all(uploads).await.iter().all(|status| *status == 200));
    assert_eq!(guest.shell("cat n/e/w/* | wc -c").await.text().trim(), "800000");
}

#[tokio::test]
async fn a_full_disk_is_said_to_be_full() {
    required();
    let guest = Guest::start(false).await;
    let (status, answer) = put(&guest, "/home/small/big", vec![1; 3_000_000]).await;
    assert_eq!((status, &answer["code"]), (507, &json!(507)), "{answer}");
}

#[tokio::test]
async fn folders_are_watched_by_stream_and_by_poll() {
    required();
    let guest = Guest::start(false).await;
    let watch = json!({ "path": "~", "recursive": true, "includeEntry": true });
    let mut stream = guest.call_stream("/filesystem.Filesystem/WatchDir", &watch, &[]).await;
    assert_eq!(stream.next().await.unwrap(), (false, json!({ "start": {} })));
    let (status, answer) = method(&guest, "CreateWatcher", json!({ "path": "~", "recursive": true })).await;
    assert_eq!(status, 200, "{answer}");
    let id = answer["watcherId"].clone();
    guest.shell("mkdir sub; echo x > sub/file; mv sub/file sub/moved; rm sub/moved; chmod 700 sub").await;
    let (_, answer) = method(&guest, "GetWatcherEvents", json!({ "watcherId": id })).await;
    let events: Vec<(&str, &str)> = answer["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| (event["name"].as_str().unwrap(), event["type"].as_str().unwrap()))
        .collect();
    assert!(
        events.contains(&("sub", "EVENT_TYPE_CREATE")) && events.contains(&("sub", "EVENT_TYPE_CHMOD")),
        "{events:?}"
    );
    let (_, message) = stream.next().await.unwrap();
    assert_eq!(
        (&message["filesystem"]["name"], &message["filesystem"]["entry"]["name"]),
        (&json!("sub"), &json!("sub"))
    );
    guest.shell("echo y > sub/second").await;
    let (_, answer) = method(&guest, "GetWatcherEvents", json!({ "watcherId": id })).await;
    let text = answer.to_string();
    assert!(text.contains("sub/second") && text.contains("EVENT_TYPE_WRITE"), "{text}");
    assert_eq!(method(&guest, "RemoveWatcher", json!({ "watcherId": id })).await.0, 200);
    assert_eq!(method(&guest, "GetWatcherEvents", json!({ "watcherId": id })).await.0, 404);
    assert_eq!(method(&guest, "CreateWatcher", json!({ "path": "none" })).await.0, 404);
    assert_eq!(method(&guest, "CreateWatcher", json!({ "path": "/etc/passwd" })).await.0, 400);
}

#[tokio::test]
async fn metrics_and_environment_are_json() {
    required();
    let guest = Guest::start(false).await;
    for (path, key) in [("/metrics", "mem_total"), ("/envs", "FROM_INIT")] {
        let answer = guest.send(Request::get(path).body(Empty::<Bytes>::new()).unwrap()).await;
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        let value: Value = serde_json::from_slice(&bytes).unwrap();
        assert!(value.get(key).is_some(), "{value}");
    }
}
