//! Commands in containers, and sessions: `ExecSync`, `Exec`, `Attach` and `PortForward`. Each is a
//! job of its own. If the server dies here, the job ends the command of an `ExecSync`; a session
//! that is open goes on without a server.

use super::Runtime;
use super::container::sandbox_not_ready;
use super::event::CallId;
use super::jobs::Owner;
use super::refusal::{of_job, refusal};
use crate::limits::{EXEC_DEADLINE_MS, RUNTIME_EXEC_EXTRA_MS, RUNTIME_JOB_MS};
use crate::model::cri::Network;
use crate::model::runtime::{
    Code, ContainerFolder, Job, JobFault, JobReply, Pipes, Refusal, Reply, Session,
};

impl Runtime {
    pub(super) fn exec(
        &mut self,
        call: CallId,
        id: &str,
        command: Vec<String>,
        timeout_s: i64,
    ) -> Result<Option<Reply>, Refusal> {
        if command.is_empty() {
            return Err(refusal(Code::InvalidArgument, "got an empty command"));
        }
        let (container, _) = self.running(id)?;
        let timeout_s = u32::try_from(timeout_s.max(0)).unwrap_or(u32::MAX);
        let ms = match timeout_s {
            0 => EXEC_DEADLINE_MS,
            timeout_s => u64::from(timeout_s) * 1_000 + RUNTIME_EXEC_EXTRA_MS,
        };
        self.execs.insert(call, timeout_s);
        let job = Job::Exec { container, command, timeout_s };
        self.context.jobs.add(Owner::Exec(call), job, ms);
        Ok(None)
    }

    /// A running container, and whether its input ends with that of the first client.
    fn running(&mut self, id: &str) -> Result<(ContainerFolder, bool), Refusal> {
        let container = self.shown(id)?;
        if !container.is_running() {
            return Err(container.wrong_state());
        }
        Ok((container.folder(), container.record().config.terminal.stdin_once))
    }

    pub(super) fn open_forward(
        &mut self,
        call: CallId,
        sandbox: &str,
        ports: Vec<u16>,
    ) -> Result<Option<Reply>, Refusal> {
        let sandbox = self.shown_sandbox(sandbox)?;
        if !sandbox.is_open() {
            return Err(sandbox_not_ready());
        }
        let record = sandbox.record();
        let own_network = record.config.namespaces.network == Network::Pod;
        let sandbox = record.id.clone();
        Ok(self.open(call, Session::PortForward { sandbox, own_network, ports }))
    }

    pub(super) fn open_exec(
        &mut self,
        call: CallId,
        id: &str,
        command: Vec<String>,
        pipes: Pipes,
    ) -> Result<Option<Reply>, Refusal> {
        let (container, _) = self.running(id)?;
        Ok(self.open(call, Session::Exec { container, command, pipes }))
    }

    pub(super) fn open_attach(
        &mut self,
        call: CallId,
        id: &str,
        pipes: Pipes,
    ) -> Result<Option<Reply>, Refusal> {
        let (container, stdin_once) = self.running(id)?;
        Ok(self.open(call, Session::Attach { container, pipes, stdin_once }))
    }

    /// The answer comes with the job's.
    fn open(&mut self, call: CallId, session: Session) -> Option<Reply> {
        self.execs.insert(call, 0);
        self.context.jobs.add(Owner::Exec(call), Job::Open(session), RUNTIME_JOB_MS);
        None
    }

    pub(super) fn exec_done(&mut self, call: CallId, result: Result<JobReply, JobFault>) {
        // Absent: it was cancelled, and is answered.
        let Some(timeout_s) = self.execs.remove(&call) else { return };
        let answer = match result {
            Ok(JobReply::Exec(output)) => Ok(Reply::Exec(Box::new(output))),
            Ok(JobReply::Url(url)) => Ok(Reply::Url(url)),
            Ok(
                JobReply::Done
                | JobReply::Network(_)
                | JobReply::Image(_)
                | JobReply::Images(_)
                | JobReply::Stats(_),
            ) => Ok(Reply::Exec(Box::default())),
            // The job was killed at its deadline, which is later than the command's.
            Err(JobFault::Died(_)) if timeout_s > 0 => {
                let message = format!("timeout {timeout_s}s exceeded");
                Err(refusal(Code::DeadlineExceeded, message))
            }
            Err(fault) => Err(of_job(fault)),
        };
        self.context.calls.answer(call, answer);
    }
}
