"""test_harness.py: the servers of the other tests work."""


def test_a_server_comes_back_empty_after_a_restart(redis):
    with redis.client() as client:
        client.set("key", "value")
    redis.restart()
    with redis.client() as client:
        assert client.get("key") is None


def test_a_server_answers_on_tcp_where_asked_for(start_redis):
    server = start_redis(tcp=True)
    assert server.address == f"127.0.0.1:{server.port}"
    with server.client() as client:
        assert client.config_get("port")["port"] == str(server.port)


def test_a_killed_server_can_be_started_again(redis):
    redis.kill()
    assert not redis.running
    redis.start()
    with redis.client() as client:
        assert client.ping()
