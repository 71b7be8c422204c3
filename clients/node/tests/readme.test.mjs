// Every snippet of the README: compiled with strict types, and run against a daemon with the README's configuration.
import assert from 'node:assert/strict'
import { execFile, spawn } from 'node:child_process'
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { PATIENCE_MS, PROGRAM, ask, eventually, login, onFreePort, patient } from './harness.mjs'

const HOME = fileURLToPath(new URL('..', import.meta.url))
const FOLDER = join(HOME, 'build', 'readme')
const run = promisify(execFile)

const page = await readFile(join(HOME, 'README.md'), 'utf8')
const [, config] = /<!-- config -->\n```yaml\n([^]*?)```/.exec(page)
const snippets = [
  ...page.matchAll(/(?:<!-- (runs|serves): ?(.*?) -->|<!-- (runs) -->)\n```(?:ts|js)\n([^]*?)```/g),
].map(([, serves, requests, runs, code]) => ({ kind: serves ?? runs, requests, code }))

let folder, daemon, socket
before(async () => {
  await mkdir(FOLDER, { recursive: true })
  await writeFile(
    join(FOLDER, 'tsconfig.json'),
    JSON.stringify({
      extends: '../../examples/tsconfig.json',
      compilerOptions: { rootDir: '.', outDir: './out', noUnusedLocals: false },
      include: ['*.ts'],
    }),
  )
  for (const [i, { code }] of snippets.entries()) {
    const runnable = code
      .replace(/(listen\(|port: )3000/, '$1Number(process.env.PORT)')
      .replace(/new RateLimiter\(\)/g, `new RateLimiter({ timeoutMs: ${PATIENCE_MS} })`)
    await writeFile(join(FOLDER, `snippet${i}.ts`), runnable)
  }
  await run('npx', ['tsc', '-p', FOLDER], { cwd: HOME }).catch(({ stdout }) => assert.fail(stdout))

  folder = await mkdtemp(join(tmpdir(), 'ratelimitd-'))
  socket = join(folder, 'socket')
})
after(() => rm(folder, { recursive: true, force: true }))

async function withDaemon(work) {
  await writeFile(join(folder, 'ratelimitd.yaml'), config)
  const where = ['-c', join(folder, 'ratelimitd.yaml'), '-s', socket]
  daemon = spawn(PROGRAM, [...where, '--test-clock'], { stdio: 'inherit' }) // its clock stands still: no window ends
  const probe = patient({ socket })
  try {
    await eventually(() =>
      probe.ping().then(
        () => true,
        () => false,
      ),
    )
    await work()
  } finally {
    probe.close()
    daemon.kill()
    await new Promise((resolve) => daemon.once('exit', resolve))
  }
}

function start(i, port) {
  const env = {
    ...process.env,
    PORT: String(port),
    RATELIMIT_SOCKET: socket,
    PATH: `${join(PROGRAM, '..')}:${process.env.PATH}`,
  }
  return spawn(process.execPath, [join(FOLDER, 'out', `snippet${i}.js`)], { env, stdio: ['ignore', 'pipe', 'pipe'] })
}

/** A snippet that serves: {port, stop()}. Rejects with its output if it ends. */
async function startServing(i, port) {
  const child = start(i, port)
  const end = ends(child)
  await eventually(async () => {
    if (child.exitCode !== null) throw new Error(`the snippet ended: ${(await end).output}`)
    return ask(port, '/nothing').then(
      () => true,
      () => false,
    )
  })
  return {
    port,
    async stop() {
      child.kill()
      await end
    },
  }
}

async function ends(child) {
  let output = ''
  child.stdout.on('data', (data) => (output += data))
  child.stderr.on('data', (data) => (output += data))
  const status = await new Promise((resolve) => child.once('exit', resolve))
  return { status, output }
}

/** Neither another spelling of the path, a forged address nor a forged preflight gets a client past its limit. */
async function isNotPassed(port, path, page) {
  const origin = { Origin: 'https://example.org', 'Access-Control-Request-Method': 'GET' }
  for (const headers of [origin, { 'Access-Control-Request-Method': 'x' }])
    assert.notEqual((await ask(port, path, { method: 'OPTIONS', headers })).body, page, 'a forged preflight')
  for (const spelling of [`${path};a=1`, `${path}/`, `/${path}`, path.toUpperCase(), `${path}%20`, `${path}?a=1`])
    assert.notEqual((await ask(port, spelling)).status, 200, spelling)
  for (const name of ['X-Forwarded-For', 'X-Real-IP', 'Forwarded'])
    for (const value of ['203.0.113.9', 'for=203.0.113.9', '', ','])
      assert.equal((await ask(port, path, { headers: { [name]: value } })).status, 429, `${name}: ${value}`)
}

test('every snippet is one that runs', () => {
  assert.equal(snippets.length, (page.match(/```(?:ts|js)\n/g) ?? []).length)
  assert.ok(snippets.length >= 9)
})

for (const [i, { kind, requests, code }] of snippets.entries()) {
  const title = /ratelimitd\/(\w+)/.exec(code)?.[1] ?? 'ratelimitd'

  if (kind === 'runs') {
    test(`snippet ${i + 1} (${title}) prints what its comments show`, () =>
      withDaemon(async () => {
        const { status, output } = await ends(start(i, 0))
        assert.equal(status, 0, output)
        // what follows // behind a console.log() is what it prints; not where the line is not reached
        const lines = [...code.matchAll(/^\s*(?:if .*)?console\.log\(.*\) *\/\/ (.*)$/gm)].map(([, line]) => line)
        assert.ok(lines.length > 0)
        for (const line of lines) assert.ok(output.includes(line), `${line} is not in: ${output}`)
      }))
  } else {
    test(`snippet ${i + 1} (${title}) serves ${requests}`, () =>
      withDaemon(async () => {
        const { port, stop } = await onFreePort((port) => startServing(i, port))
        try {
          let page // what the limited path shows
          for (const [, method, path, status, times = '1'] of requests.matchAll(
            /(GET|POST) (\S+) (\d+)(?: (\d+) times)?/g,
          )) {
            for (let time = 0; time < Number(times); time++) {
              const answer = method === 'POST' ? await login(port, 'alice', 'wrong') : await ask(port, path)
              assert.equal(answer.status, Number(status), `${method} ${path}: ${answer.body}`)
              if (answer.status === 200) page = answer.body
              if (answer.status === 429) assert.ok(Number(answer.headers['retry-after']) >= 1)
              if (answer.status === 200 && !path.endsWith('health'))
                assert.match(answer.headers['ratelimit'], /^"(web|left)";r=\d+;t=\d+/)
            }
            if (method === 'GET' && status === '429') await isNotPassed(port, path, page)
          }
        } finally {
          await stop()
        }
      }))
  }
}
