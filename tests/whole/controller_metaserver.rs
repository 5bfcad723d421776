//! MetaServer and the dynamic controller, both real: a program on the gateway watches what the
//! cloud changes, over controllers that were killed.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

use super::World;
use super::support::controller::{Cloud, map};
use super::support::http::ask;
use super::support::joined::with_metaserver;
use super::support::port::free_port;
use super::support::wait::until;

crate::tests!(a_watch_on_the_gateway_goes_on_over_killed_controllers);

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A watch as a client has it.
struct Watch {
    stream: TcpStream,
    text: Vec<u8>,
}

impl Watch {
    fn open(port: u16) -> Self {
        let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_millis(100))).expect("a socket");
        let request = format!(
            "GET {MAPS}?watch=true HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\
             Accept: application/json\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).expect("it reads");
        Self { stream, text: Vec::new() }
    }

    /// Waits for the next event: its type, and the value that the map has.
    fn next(&mut self) -> (String, String) {
        until("an event of the watch", || {
            while let Some(end) = self.text.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.text.drain(..=end).collect();
                // The others are of the head, and the lengths of chunks.
                let Ok(event) = serde_json::from_slice::<Value>(&line) else { continue };
                if event["type"].is_string() {
                    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                    return Ok((text(&event["type"]), text(&event["object"]["data"]["k"])));
                }
            }
            let mut read = [0; 4_096];
            match self.stream.read(&mut read) {
                Ok(0) => panic!("the watch has ended: {}", String::from_utf8_lossy(&self.text)),
                Ok(length) => self.text.extend(&read[..length]),
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) => panic!("{error}"),
            }
            Err(String::from_utf8_lossy(&self.text).into_owned())
        })
    }
}

fn a_watch_on_the_gateway_goes_on_over_killed_controllers(world: &World) {
    let mut cloud = Cloud::new(world.folder("metaserver-watch-cloud"));
    cloud.flags = ["--metaserver-reads", "configmaps"].map(str::to_owned).into();
    let controller = cloud.start();
    cloud.put("cm.json", &map("cm", "one"));
    let mut site = world.site("metaserver-watch");
    cloud.welcome(&mut site, cloud.hub);
    let port = free_port();
    with_metaserver(&site, port, "");
    let _agent = site.start();
    until("the cloud's object is read on the gateway", || {
        let answer = ask(port, "GET", &format!("{MAPS}/cm"), "")?;
        let is_it = answer.code == 200 && answer.header("warning").is_none();
        is_it.then_some(()).ok_or(format!("{answer:?}\n{}", cloud.log_tail()))
    });
    // Not among what nodes may read here.
    let answer = ask(port, "GET", "/api/v1/nodes", "").expect("it listens");
    assert_eq!(answer.code, 403, "{answer:?}");

    let mut watch = Watch::open(port);
    let event = |kind: &str, value: &str| (kind.to_owned(), value.to_owned());
    assert_eq!(watch.next(), event("ADDED", "one"));
    cloud.put("cm.json", &map("cm", "two"));
    assert_eq!(watch.next(), event("MODIFIED", "two"));
    controller.kill();
    cloud.put("cm.json", &map("cm", "three"));
    let controller = cloud.start();
    assert_eq!(watch.next(), event("MODIFIED", "three"));
    cloud.put("cm.json", &map("cm", "four"));
    assert_eq!(watch.next(), event("MODIFIED", "four"), "the new one is watched as well");
    controller.kill();
    cloud.take("cm.json");
    let _controller = cloud.start();
    assert_eq!(watch.next(), event("DELETED", "four"));
}
