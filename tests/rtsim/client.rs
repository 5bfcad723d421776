//! The client: calls as an agent makes them, and others.

use edged::model::cri::PidNamespace::{self, Container};
use edged::model::cri::{Namespaces, PodRef, Resources};
use edged::model::runtime::{
    ContainerConfig, ContainerFilter, Pipes, Record, RecordKey, Request, SandboxConfig,
    SandboxFilter,
};
use edged::runtime::event::{CallId, Event};

use crate::trace::trace;
use crate::world::{Due, World};

impl World {
    pub fn client_acts(&mut self) {
        if self.is_over {
            return;
        }
        let next_ms = 1 + self.chance.below(2 * self.faults.call_ms);
        self.at(next_ms, Due::Client);
        let request = self.draw_request();
        self.call(request);
    }

    pub fn call(&mut self, request: Request) {
        let Some(life) = self.server.as_ref().map(|server| server.life) else { return };
        self.last_call += 1;
        let call = CallId(self.last_call);
        trace!(self.now, "call {} {request:?}", call.0);
        self.check.opened(call, request.clone());
        if let Request::CreateContainer { sandbox, .. } = &request {
            let server = self.server.as_ref().expect("just seen");
            let is_lost = server.lost.iter().any(|id| id.0.starts_with(&**sandbox));
            self.check.creates_in_lost(call, is_lost);
        }
        if self.chance.percent(self.faults.cancel_pct) {
            let ms = self.delay_ms();
            self.at(ms, Due::Cancel(life, call));
        }
        self.deliver(Event::Call(call, request));
    }

    pub fn cancel(&mut self, life: u64, call: CallId) {
        let is_same = self.server.as_ref().is_some_and(|server| server.life == life);
        if is_same && self.check.is_open(call) {
            trace!(self.now, "cancel {}", call.0);
            self.tally.add("cancelled");
            self.deliver(Event::Cancel(call));
        }
    }

    fn draw_request(&mut self) -> Request {
        let chance = &mut self.chance;
        match chance.below(100) {
            0..10 => {
                let number = chance.below(4);
                let pod = PodRef {
                    uid: format!("uid-{number}").into(),
                    namespace: "default".into(),
                    name: format!("pod-{number}").into(),
                };
                let attempt = chance.below(3) as u32;
                let pid = if chance.percent(30) { PidNamespace::Pod } else { Container };
                let namespaces = Namespaces { pid, ..Namespaces::default() };
                let config = SandboxConfig { pod, attempt, namespaces, ..SandboxConfig::default() };
                Request::RunPodSandbox(Box::new(config))
            }
            10..25 => {
                let config = ContainerConfig {
                    name: format!("c{}", chance.below(3)).into(),
                    attempt: chance.below(2) as u32,
                    image_ref: (*chance.pick(&["a:1", "b:1"])).into(),
                    ..ContainerConfig::default()
                };
                let sandbox = self.draw_sandbox();
                Request::CreateContainer { sandbox, config: Box::new(config) }
            }
            25..45 => Request::StartContainer(self.draw_container()),
            45..53 => {
                let grace_s = chance.below(4) as i64;
                Request::StopContainer { id: self.draw_container(), grace_s }
            }
            53..58 => Request::RemoveContainer(self.draw_container()),
            58..60 => Request::StopPodSandbox(self.draw_sandbox()),
            60..63 => Request::RemovePodSandbox(self.draw_sandbox()),
            63 => {
                let pipes = Pipes { stdout: true, ..Pipes::default() };
                Request::Attach { id: self.draw_container(), pipes }
            }
            64 => {
                let (id, command) = (self.draw_container(), vec!["sh".to_owned()]);
                Request::Exec { id, command, pipes: Pipes { stdin: true, ..Pipes::default() } }
            }
            65 => Request::PortForward { sandbox: self.draw_sandbox(), ports: vec![80] },
            66..70 => {
                let command = if chance.percent(95) { vec!["true".to_owned()] } else { Vec::new() };
                let timeout_s = chance.below(3) as i64;
                Request::ExecSync { id: self.draw_container(), command, timeout_s }
            }
            70..78 => {
                let image = (*chance.pick(&["a:1", "b:1", "c:1"])).into();
                Request::PullImage { image, auth: None }
            }
            78..80 => Request::ImportImages { path: "/import".into() },
            80..83 => Request::RemoveImage((*chance.pick(&["a:1", "b:1", "c:1"])).into()),
            83..90 => Request::ContainerStatus(self.draw_container()),
            90..92 => {
                let memory_limit = 1 + chance.below(1_000) as i64;
                let resources = Resources { memory_limit, ..Resources::default() };
                let id = self.draw_container();
                Request::UpdateContainerResources { id, resources: Box::new(resources) }
            }
            92 => Request::ListContainers(ContainerFilter::default()),
            93..95 => Request::ListContainerStats(ContainerFilter::default()),
            95..97 => Request::ListPodSandboxStats(SandboxFilter::default()),
            97 => Request::ReopenContainerLog(self.draw_container()),
            98 => Request::GetContainerEvents,
            _ => Request::ListImages(None),
        }
    }

    fn draw_sandbox(&mut self) -> Box<str> {
        let ids: Vec<Box<str>> =
            self.ids().filter_map(|(is_sandbox, id)| is_sandbox.then_some(id)).collect();
        self.draw_id(&ids)
    }

    fn draw_container(&mut self) -> Box<str> {
        let ids: Vec<Box<str>> =
            self.ids().filter_map(|(is_sandbox, id)| (!is_sandbox).then_some(id)).collect();
        self.draw_id(&ids)
    }

    /// Mostly one of them, sometimes its beginning, sometimes none.
    fn draw_id(&mut self, ids: &[Box<str>]) -> Box<str> {
        if ids.is_empty() || self.chance.percent(2) {
            return "f".repeat(64).into();
        }
        let id = self.chance.pick(ids).clone();
        if self.chance.percent(10) { id[..12].into() } else { id }
    }

    /// Of sandboxes (true) and containers (false).
    fn ids(&self) -> impl Iterator<Item = (bool, Box<str>)> {
        self.machine.records.keys().filter_map(|key| match key {
            RecordKey::Sandbox(id) => Some((true, id.0.clone())),
            RecordKey::Container(id) => Some((false, id.0.clone())),
            RecordKey::Image(_) => None,
        })
    }

    /// What shows all that there is, and what removes it, with all that the client was told of:
    /// after a failure of the disk the server may show what has no record.
    pub fn removals(&self) -> Vec<Request> {
        let all = self.machine.records.values().map(|record| match record {
            Record::Sandbox(record) => Request::RemovePodSandbox(record.id.0.clone()),
            Record::Container(record) => Request::RemoveContainer(record.id.0.clone()),
            Record::Image(record) => Request::RemoveImage(record.id.0.clone()),
        });
        let lists = [
            Request::ListPodSandbox(SandboxFilter::default()),
            Request::ListContainers(ContainerFilter::default()),
        ];
        lists.into_iter().chain(self.check.removals.iter().cloned()).chain(all).collect()
    }
}
