// The package as it is installed.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { test } from 'node:test'

const require = createRequire(import.meta.url)
const { dependencies, exports, peerDependencies, peerDependenciesMeta } = require('../package.json')

for (const path of Object.keys(exports).filter((path) => !path.endsWith('.json')))
  test(`${path} can be imported and required`, async () => {
    const name = path.replace('.', 'ratelimitd')
    const imported = Object.keys(await import(name)).sort()
    assert.deepEqual(imported, Object.keys(require(name)).sort())
    assert.ok(imported.length > 0)
  })

test('it needs one other package, and frameworks only where they are used', () => {
  assert.deepEqual(Object.keys(dependencies), ['@msgpack/msgpack'])
  for (const name of Object.keys(peerDependencies)) assert.equal(peerDependenciesMeta[name].optional, true)
})

test('the lock file names no registry', () => {
  assert.doesNotMatch(readFileSync(new URL('../package-lock.json', import.meta.url), 'utf8'), /"resolved"/)
})
